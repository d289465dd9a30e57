package sshclient_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// network is a namespace at the other end of a cable that can be unplugged.
type network struct{ name string }

// plug makes the namespace, in which the server's address is 10.213.77.2.
func plug(t *testing.T) network {
	t.Helper()
	_, err := exec.LookPath("ip")
	needs(t, err == nil && os.Getuid() == 0, "iproute2, and root to make a network namespace")
	n := network{fmt.Sprintf("genv-t%d", os.Getpid())}
	if out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		t.Skipf("skipped: this test needs permission to make a network namespace, which this machine refuses: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n.name).Run() })
	for _, line := range [][]string{
		{"link", "add", "genv-t0", "type", "veth", "peer", "name", "genv-t1", "netns", n.name},
		{"addr", "add", "10.213.77.1/30", "dev", "genv-t0"},
		{"link", "set", "genv-t0", "up"},
		{"-n", n.name, "addr", "add", "10.213.77.2/30", "dev", "genv-t1"},
		{"-n", n.name, "link", "set", "lo", "up"},
		{"-n", n.name, "link", "set", "genv-t1", "up"},
	} {
		run(t, "ip", line...)
	}
	return n
}

// cable plugs the far end in or out; what is sent meanwhile is lost.
func (n network) cable(t *testing.T, state string) {
	t.Helper()
	run(t, "ip", "-n", n.name, "link", "set", "genv-t1", state)
}

func TestPartition(t *testing.T) {
	n := plug(t)
	s := &sshd{dir: t.TempDir(), address: "10.213.77.2", port: 2222, prefix: []string{"ip", "netns", "exec", n.name}}
	s.prepare(t)
	c := newClient(t, sshclient.Options{ConfigFile: s.config(t), KeepAlive: 100 * time.Millisecond, ConnectTimeout: time.Second})
	session, err := c.Start(t.Context(), gpu, sh("echo started; cat"))
	require.NoError(t, err)
	defer session.Close()
	_, err = io.ReadFull(session.Stdout, make([]byte, len("started")))
	require.NoError(t, err)

	n.cable(t, "down")
	err = session.Wait()
	requireClass(t, remote.OutcomeUnknown, err)
	require.ErrorContains(t, err, "no sign of life")
	_, err = c.Run(t.Context(), gpu, sh("true"))
	// Whether the kernel reports that there is no route, or drops the packets, is up to it.
	require.Contains(t, []remote.Class{remote.Unreachable, remote.Timeout}, remote.ClassOf(err), "%v", err)

	n.cable(t, "up")
	require.Eventually(t, func() bool {
		_, err := c.Run(t.Context(), gpu, sh("true"))
		return err == nil
	}, 20*time.Second, 50*time.Millisecond, "it comes back by itself")
}
