package sshclient_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

func TestDeadlines(t *testing.T) {
	t.Run("a command that hangs", func(t *testing.T) {
		f := startFake(t, func(f *fake) {
			f.command = func(ch ssh.Channel, line string, _ net.Conn) {
				if line == "true" {
					exit(ch, 0)
					return
				}
				_, _ = io.WriteString(ch, "half")
				<-f.stop
			}
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config(), CommandTimeout: 300 * time.Millisecond})
		out, err := c.Run(t.Context(), gpu, remote.Command{Args: []string{"hang"}, Stdin: make([]byte, 16<<20)})
		requireClass(t, remote.Timeout, err)
		require.Equal(t, "half", string(out.Stdout), "what had arrived")
		_, err = c.Run(t.Context(), gpu, remote.Command{Args: []string{"true"}})
		require.NoError(t, err)
	})
	t.Run("the caller stops", func(t *testing.T) {
		f := startFake(t, func(f *fake) { f.command = f.hang })
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(200*time.Millisecond, cancel)
		_, err := c.Run(ctx, gpu, snapshot)
		requireClass(t, remote.Cancelled, err)
	})
	t.Run("the client is closed", func(t *testing.T) {
		started := make(chan struct{})
		f := startFake(t, func(f *fake) {
			f.command = func(ssh.Channel, string, net.Conn) { close(started); <-f.stop }
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		var running sync.WaitGroup
		running.Go(func() {
			_, err := c.Run(context.Background(), gpu, snapshot)
			requireClass(t, remote.OutcomeUnknown, err)
		})
		<-started
		c.Close()
		running.Wait()
		_, err := c.Run(t.Context(), gpu, snapshot)
		requireClass(t, remote.Cancelled, err)
	})
	t.Run("a peer that freezes is found by keep-alive", func(t *testing.T) {
		frozen := make(chan struct{})
		f := startFake(t, func(f *fake) {
			f.accept = func(conn net.Conn, number int32) bool {
				if number == 1 {
					f.handle(&freezing{Conn: conn, frozen: frozen})
					return false
				}
				return true
			}
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config(), KeepAlive: 50 * time.Millisecond, CommandTimeout: time.Minute})
		_, err := c.Run(t.Context(), gpu, snapshot)
		require.NoError(t, err)
		close(frozen)
		_, err = c.Run(t.Context(), gpu, snapshot)
		if err != nil { // asked in the moment between the freeze and its discovery
			requireClass(t, remote.OutcomeUnknown, err)
		}
		_, err = c.Run(t.Context(), gpu, snapshot)
		require.NoError(t, err, "a fresh connection")
		require.EqualValues(t, 2, f.conns.Load())
	})
}

// freezing reads nothing more once it is frozen, as a stopped process would.
type freezing struct {
	net.Conn
	frozen chan struct{}
}

func (f *freezing) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	select {
	case <-f.frozen:
		for err == nil { // keep what came until the connection ends
			_, err = f.Conn.Read(make([]byte, 1024))
		}
		return 0, err
	default:
		return n, err
	}
}
