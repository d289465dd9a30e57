package sshclient_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// relay is an address that passes connections on to a server, except those that it
// drops, which is what sshd does at random beyond MaxStartups.
type relay struct {
	port  int
	drops atomic.Int32 // how many more connections to drop
	reset bool         // drop them without the usual farewell
}

func startRelay(t *testing.T, to *sshd) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", to.address+":0")
	require.NoError(t, err)
	r := &relay{port: listener.Addr().(*net.TCPAddr).Port}
	var all sync.WaitGroup
	all.Go(func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			all.Go(func() { r.serve(conn.(*net.TCPConn), to.target()) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	return r
}

func (r *relay) serve(conn *net.TCPConn, target string) {
	defer conn.Close()
	if r.drops.Add(-1) >= 0 {
		if r.reset {
			_, _ = conn.Read(make([]byte, 1)) // else a bastion reports that it could not connect
			_ = conn.SetLinger(0)
		}
		return
	}
	onward, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(conn, onward); _ = conn.Close() })
	_, _ = io.Copy(onward, conn)
	_ = onward.Close()
	back.Wait()
}

// TestBusyBastionBehindProxyCommand: what a busy bastion drops is ErrBusy, which
// callers try again, as behind ProxyJump; so is what the host behind it drops.
func TestBusyBastionBehindProxyCommand(t *testing.T) {
	j := startJumps(t)
	bastion, host := startRelay(t, j.first), startRelay(t, j.last)
	known := j.first.read(t, "all_known")
	j.first.write(t, "all_known", known+strings.NewReplacer(
		fmt.Sprint(j.first.port), fmt.Sprint(bastion.port), fmt.Sprint(j.last.port), fmt.Sprint(host.port)).Replace(known))
	inner := j.config(t, "Host bastion", " HostName "+j.first.address, fmt.Sprintf(" Port %d", bastion.port))
	config := j.config(t, "Host gpu", fmt.Sprintf(" Port %d", host.port), " ProxyCommand ssh -F "+inner+" -W [%h]:%p bastion")
	for name, busy := range map[string]*relay{"the bastion": bastion, "the host": host} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reset %v", name, reset), func(t *testing.T) {
				busy.reset = reset
				busy.drops.Store(2)
				c := newClient(t, sshclient.Options{ConfigFile: config})
				for range 2 {
					_, err := c.Run(t.Context(), gpu, sh("true"))
					requireClass(t, remote.Unreachable, err)
					require.ErrorIs(t, err, remote.ErrBusy)
					require.ErrorContains(t, err, "MaxStartups")
				}
				_, err := c.Run(t.Context(), gpu, sh("true"))
				require.NoError(t, err)
			})
		}
	}
	t.Run("a bastion that is down is not busy", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu", " ProxyCommand ssh -F "+inner+" -p 1 -W [%h]:%p bastion")})
		_, err := c.Run(t.Context(), gpu, sh("true"))
		requireClass(t, remote.Unreachable, err)
		require.NotErrorIs(t, err, remote.ErrBusy)
		require.ErrorContains(t, err, "refused")
	})
}

// TestFailingProxyCommands: what fails every time is not worth another try.
func TestFailingProxyCommands(t *testing.T) {
	f := startFake(t, nil)
	for command, busy := range map[string]bool{
		"exit 1": false, "echo no way >&2; exit 1": false, "kill -9 $$": false, "exec nosuchprogram": false, "echo Connection reset by peer >&2; exit 255": false,
		"echo Connection reset by UNKNOWN port -1 >&2; exit 255": true,
		"true": true, "echo kex_exchange_identification: Connection closed by remote host >&2; exit 255": true,
	} {
		t.Run(command, func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: f.config("ProxyCommand sh -c '" + command + "'")})
			_, err := c.Run(t.Context(), gpu, snapshot)
			requireClass(t, remote.Unreachable, err)
			require.Equal(t, busy, isBusy(err), "%v", err)
		})
	}
}

func isBusy(err error) bool { return errors.Is(err, remote.ErrBusy) }
