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

// network is a namespace at the other end of a cable that can be unplugged. Names and
// addresses are the test process's own, so that several can run at a time.
type network struct {
	name    string
	address string // of the far end
}

// plug makes the namespace.
func plug(t *testing.T) network {
	t.Helper()
	_, err := exec.LookPath("ip")
	needs(t, err == nil && os.Getuid() == 0, "iproute2, and root to make a network namespace")
	near, block := fmt.Sprintf("gv%d", os.Getpid()), 4*(os.Getpid()%(1<<14))
	here := fmt.Sprintf("10.213.%d.%d/30", block>>8, block&255+1)
	n := network{fmt.Sprintf("genv-t%d", os.Getpid()), fmt.Sprintf("10.213.%d.%d", block>>8, block&255+2)}
	if out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		t.Skipf("skipped: this test needs permission to make a network namespace, which this machine refuses: %s", out)
	}
	t.Cleanup(func() {
		_ = exec.Command("ip", "netns", "del", n.name).Run()
		_ = exec.Command("ip", "link", "del", near).Run() // it may have gone with the namespace
	})
	for _, line := range [][]string{
		{"link", "add", near, "type", "veth", "peer", "name", "genv-t1", "netns", n.name},
		{"addr", "add", here, "dev", near},
		{"link", "set", near, "up"},
		{"-n", n.name, "addr", "add", n.address + "/30", "dev", "genv-t1"},
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
	s := &sshd{dir: t.TempDir(), address: n.address, port: 2222, prefix: []string{"ip", "netns", "exec", n.name}}
	s.prepare(t)
	c := newClient(t, sshclient.Options{ConfigFile: s.config(t), KeepAlive: 100 * time.Millisecond, ConnectTimeout: 3 * time.Second})
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
