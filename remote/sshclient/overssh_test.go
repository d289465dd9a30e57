package sshclient_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// controlled is a server that refuses new logins, and an ssh that logged in before and
// runs as ControlMaster, as after a login with a second factor.
type controlled struct {
	*sshd
	path   string // the ControlPath
	conf   string
	master *os.Process
}

func startControlled(t *testing.T) *controlled {
	t.Helper()
	c := &controlled{sshd: startSSHD(t)}
	c.conf = c.config(t, "ControlPath "+proctest.PublicDir(t, 0o700)+"/%C-%r", "ControlMaster auto")
	c.write(t, "authorized2", c.read(t, "authorized"))
	return c
}

// open logs in as the master and then has the server refuse the key.
func (c *controlled) open(t *testing.T) {
	t.Helper()
	c.write(t, "authorized", c.read(t, "authorized2"))
	var said bytes.Buffer
	ssh := exec.Command("ssh", "-F", c.conf, "-o", "ControlMaster=auto", "-N", "gpu")
	ssh.Stderr = &said
	require.NoError(t, ssh.Start())
	c.master = ssh.Process
	ended := make(chan struct{})
	go func() { _ = ssh.Wait(); close(ended) }()
	t.Cleanup(func() { _ = ssh.Process.Kill(); <-ended })
	require.Eventually(t, func() bool { return c.alive() }, 30*time.Second, 10*time.Millisecond, "no master: %s", &said)
	found := proctest.Try(filepath.Glob(strings.TrimSuffix(c.socketPattern(t), "%C-%r") + "*")).OK(t)
	require.Len(t, found, 1)
	c.path = found[0]
	c.write(t, "authorized", "")
}

func (c *controlled) socketPattern(t *testing.T) string {
	for line := range strings.Lines(proctest.ReadText(t, c.conf)) {
		if path, ok := strings.CutPrefix(line, "ControlPath "); ok {
			return strings.TrimSpace(path)
		}
	}
	t.Fatal("no ControlPath")
	return ""
}

// alive asks ssh.
func (c *controlled) alive() bool {
	return exec.Command("ssh", "-F", c.conf, "-O", "check", "gpu").Run() == nil
}

// TestAMasterIsNotOurs: it belongs to somebody's terminal. A login of our own neither uses it nor
// goes over it when the host refuses the key.
func TestAMasterIsNotOurs(t *testing.T) {
	s := startControlled(t)
	s.open(t)
	c := newClient(t, sshclient.Options{ConfigFile: s.conf})
	fails(t, c, gpu, sh("true"), remote.Auth)
	s.write(t, "authorized", s.read(t, "authorized2"))
	before := logins(t, s.sshd)
	runs(t, c, gpu, sh("true"))
	require.Equal(t, before+1, logins(t, s.sshd), "a login of its own")
}

// TestNoLoginWithAKey: the error of an ssh_config that forbids one says what reaches the host.
func TestNoLoginWithAKey(t *testing.T) {
	s := startSSHD(t)
	for _, line := range []string{"PreferredAuthentications keyboard-interactive", "PubkeyAuthentication no"} {
		c := newClient(t, sshclient.Options{ConfigFile: s.config(t, line)})
		err := failure(t, c, gpu, sh("true"), remote.Configuration, strings.Fields(line)[0])
		require.Contains(t, remote.NextStepOf(err), "--ssh openssh")
	}
}

// fixed is the Handler of a host that has one snapshot.
func fixed(context.Context, agent.Call) ([]byte, error) {
	return []byte(`{"revision": 1, "snapshot": {"processes": [], "envs": [], "devices": [], "boot_id": "over-a-master"}}`), nil
}

// serving gives the host a genv, which is this test program.
func serving(t *testing.T, s *sshd) remote.Host {
	t.Helper()
	program := proctest.Try(os.Executable()).OK(t)
	script := fmt.Sprintf("#!/bin/sh\nGENV_TEST_SERVE=1 exec %s\n", program)
	require.NoError(t, proctest.WriteProgram(s.file("genv"), []byte(script)))
	return remote.Host{Name: "gpu", GenvPath: s.file("genv"), NoSudo: true}
}

// serve is the genv of a host.
func serve() {
	server := &agent.Responder{ReadToken: true, Greeting: agent.NewGreeting("test"), Handler: fixed, Idle: time.Minute}
	_ = server.Serve(context.Background(), os.Stdin, os.Stdout) // its client hangs up
}
