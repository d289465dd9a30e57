package remote

// Peer identifies the machine at the other end of a connection. Two hosts with the
// same Peer are the same machine.
type Peer struct {
	// Address is the IP address and port of the connection; behind a jump host,
	// which resolves names itself, the name and port.
	Address string
	// Through is the jump hosts or the ProxyCommand of the connection; empty for none.
	Through string
	// HostKey is the fingerprint of its host key.
	HostKey string
}

// Known says whether enough is known to compare machines.
func (p Peer) Known() bool { return p.Address != "" && p.HostKey != "" }
