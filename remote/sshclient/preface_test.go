package sshclient_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// TestLinesBeforeTheVersion: a server, or a ProxyCommand, may print as much before the
// version as OpenSSH accepts.
func TestLinesBeforeTheVersion(t *testing.T) {
	for name, tt := range map[string]struct {
		preface string
		fails   bool
	}{
		"a long line":                {strings.Repeat("x", 8192) + "\r\n", false},
		"many lines":                 {strings.Repeat("Welcome to the bastion\n", 1023), false},
		"what is almost the version": {"SSH\nSSSH-2.0\nSS\n -SSH-2.0-\n\n", false},
		"a line that is too long":    {strings.Repeat("x", 9000) + "\n", true},
		"too many lines":             {strings.Repeat("x\n", 1024), true},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, func(f *fake) {
				f.accept = func(conn net.Conn, _ int32) bool {
					_, err := io.WriteString(conn, tt.preface)
					return err == nil
				}
			})
			c := newClient(t, sshclient.Options{ConfigFile: f.config()})
			_, err := c.Run(t.Context(), gpu, snapshot)
			if tt.fails {
				requireClass(t, remote.Unreachable, err)
				require.ErrorContains(t, err, "the version of an SSH server")
				return
			}
			require.NoError(t, err)
		})
	}
	t.Run("of a ProxyCommand", func(t *testing.T) {
		s := startSSHD(t)
		noisy := fmt.Sprintf("ProxyCommand sh -c 'head -c 5000 /dev/zero | tr \"\\\\0\" x; echo; exec ssh -F none -o StrictHostKeyChecking=yes -o UserKnownHostsFile=%s -i %s -W %%h:%%p root@%s -p %d'",
			s.file("known_hosts"), s.file("id"), s.address, s.port)
		c := newClient(t, sshclient.Options{ConfigFile: s.config(t, noisy)})
		_, err := c.Run(t.Context(), gpu, sh("true"))
		require.NoError(t, err)
	})
}
