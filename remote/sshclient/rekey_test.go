package sshclient_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// A host that exchanges keys again shows its key again, long after the login: it is compared, and
// neither known_hosts nor the command that knows keys is asked.
func TestKeysThatAreExchangedAgain(t *testing.T) {
	s := startSSHD(t, "RekeyLimit 16K")
	known := strings.TrimSpace(s.read(t, "known_hosts"))
	s.write(t, "known_hosts", "")
	s.write(t, "config", fmt.Sprintf("Host gpu\n HostName %s\n Port %d\n User root\n IdentityFile %s\n UserKnownHostsFile %s\n GlobalKnownHostsFile none\n KnownHostsCommand /bin/echo %s\n",
		s.address, s.port, s.file("id"), s.file("known_hosts"), known))
	c := newClient(t, sshclient.Options{ConfigFile: s.file("config")})
	for range 3 {
		out, err := c.Run(t.Context(), remote.Host{Name: "gpu"}, sh("head -c 100000 /dev/zero"))
		require.NoError(t, err)
		require.Len(t, out.Stdout, 100000)
		time.Sleep(10 * time.Millisecond)
	}
	require.Equal(t, 1, strings.Count(s.read(t, "log"), "Accepted publickey"), "one connection")
}
