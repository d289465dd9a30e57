package sshclient

import (
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// negotiationError is the error for a host that has no algorithm of a kind that
// ssh_config allows.
func negotiationError(t target, e *ssh.AlgorithmNegotiationError) *remote.Error {
	keyword := "Compression"
	switch {
	case e.What == "key exchange":
		keyword = "KexAlgorithms"
	case e.What == "host key":
		keyword = "HostKeyAlgorithms"
	case strings.HasSuffix(e.What, "cipher"):
		keyword = "Ciphers"
	case strings.HasSuffix(e.What, "MAC"):
		keyword = "MACs"
	}
	host := slices.DeleteFunc(slices.Clone(e.RequestedAlgorithms), func(name string) bool {
		return strings.HasPrefix(name, "kex-strict-") || strings.HasPrefix(name, "ext-info-") // extensions of the protocol
	})
	err := remote.Errorf(remote.Configuration, "%s: no common algorithm for %s: the host has %s, which %s in ssh_config does not allow",
		t.address(), e.What, text.Printable(text.Cut(strings.Join(host, ","), 500)), keyword)
	err.Next = "if `ssh HOST true` connects only with an algorithm that is off by default, allow it for this host in ssh_config (`" + keyword +
		" +NAME`); if genv's own SSH lacks it, " + openSSHStep + "; better, update the host's sshd"
	return err
}
