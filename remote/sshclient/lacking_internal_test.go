package sshclient

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
)

// What genv's own SSH lacks is told from what ssh_config doesn't allow.
func TestNegotiationError(t *testing.T) {
	for _, test := range []struct{ what, host, says, next string }{
		{"key exchange", "sntrup761x25519-sha512@openssh.com", "which genv's own SSH lacks", openSSHStep},
		{"client to server MAC", "umac-64@openssh.com", "which genv's own SSH lacks", openSSHStep},
		{"key exchange", "diffie-hellman-group14-sha1", "which KexAlgorithms in ssh_config does not allow", "`KexAlgorithms +NAME`"},
		{"host key", "ssh-rsa", "which HostKeyAlgorithms in ssh_config does not allow", "`HostKeyAlgorithms +NAME`"},
	} {
		err := negotiationError(target{}, &ssh.AlgorithmNegotiationError{What: test.what, RequestedAlgorithms: []string{test.host, "ext-info-s"}})
		require.ErrorContains(t, err, test.says)
		require.Contains(t, remote.NextStepOf(err), test.next)
		require.Equal(t, remote.Configuration, err.Class)
	}
}
