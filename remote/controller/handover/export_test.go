package handover

// Tests pack and unpack documents, too.
var (
	Pack         = pack
	UnpackWithin = unpackWithin
)
