package remote

// Peer is what answered at the other end of a connection. Two hosts with the
// same Peer are one machine under two names.
type Peer struct {
	// Address is the IP address and port that was connected to; behind a jump
	// host, which resolves names itself, the name and port.
	Address string
	// Through is the jump hosts or the command that the connection goes
	// through; empty for none.
	Through string
	// HostKey is the fingerprint of the key that it proved to have.
	HostKey string
}

// Known says whether enough is known to tell machines apart.
func (p Peer) Known() bool { return p.Address != "" && p.HostKey != "" }

// Peers is the optional ability of a Runner to say what a host turned out to be.
type Peers interface {
	// Peer is what the host's last connection led to; false when there was none.
	Peer(host Host) (Peer, bool)
}
