package sshclient_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

func TestBusyServers(t *testing.T) {
	t.Run("a connection that was dropped at random is worth another try", func(t *testing.T) {
		f := startFake(t, func(f *fake) {
			f.accept = func(_ net.Conn, number int32) bool { return number > 3 }
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		for range 3 {
			_, err := c.Run(t.Context(), gpu, snapshot)
			requireClass(t, remote.Unreachable, err)
			require.ErrorIs(t, err, remote.ErrBusy)
		}
		_, err := c.Run(t.Context(), gpu, snapshot)
		require.NoError(t, err)
		require.EqualValues(t, 4, f.conns.Load())
	})
	t.Run("a refused session waits on the same connection", func(t *testing.T) {
		f := startFake(t, func(f *fake) { f.session = func(number int32) bool { return number < 4 } })
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		_, err := c.Run(t.Context(), gpu, snapshot)
		require.NoError(t, err)
		require.EqualValues(t, 1, f.conns.Load())
	})
	t.Run("sessions refused for ever", func(t *testing.T) {
		f := startFake(t, func(f *fake) { f.session = func(int32) bool { return true } })
		c := newClient(t, sshclient.Options{ConfigFile: f.config(), CommandTimeout: 300 * time.Millisecond})
		_, err := c.Run(t.Context(), gpu, snapshot)
		requireClass(t, remote.Timeout, err)
	})
	t.Run("at most two sessions a connection", func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		f := startFake(t, func(f *fake) {
			f.command = func(ch ssh.Channel, _ string, _ net.Conn) {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(5 * time.Millisecond) // long enough for others to come
				mu.Lock()
				now--
				mu.Unlock()
				exit(ch, 0)
			}
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				_, err := c.Run(t.Context(), gpu, snapshot)
				require.NoError(t, err)
			})
		}
		all.Wait()
		require.LessOrEqual(t, most, 2)
		require.EqualValues(t, 1, f.conns.Load())
	})
}

func TestReconnect(t *testing.T) {
	t.Run("a connection that died in between is replaced without a word", func(t *testing.T) {
		f := startFake(t, nil)
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		for range 3 {
			_, err := c.Run(t.Context(), gpu, snapshot)
			require.NoError(t, err)
			f.drop()
		}
		require.GreaterOrEqual(t, f.conns.Load(), int32(3))
	})
	t.Run("a jump host that refuses the login is asked once for all hosts behind it", func(t *testing.T) {
		f := startFake(t, func(f *fake) { f.refuse = true })
		c := newClient(t, sshclient.Options{ConfigFile: f.config("Host behind*", "  ProxyJump gpu")})
		for i := range 5 {
			_, err := c.Run(t.Context(), remote.Host{Name: fmt.Sprintf("behind%d", i)}, snapshot)
			requireClass(t, remote.Auth, err)
		}
		require.EqualValues(t, 1, f.conns.Load())
	})
	t.Run("known_hosts that was mended counts at once", func(t *testing.T) {
		f := startFake(t, func(f *fake) {
			require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, "known_hosts"), nil, 0o600))
		})
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		_, err := c.Run(t.Context(), gpu, snapshot)
		requireClass(t, remote.HostKey, err)
		require.False(t, remote.Outdated(err))
		f.known(f.key.PublicKey())
		require.True(t, remote.Outdated(err))
		_, err = c.Run(t.Context(), gpu, snapshot)
		require.NoError(t, err)
	})
}
