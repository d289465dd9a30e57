package sshclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// bastion is a jump host. Every login through it takes a second, and fails.
type bastion struct {
	logins, underWay, most atomic.Int32
}

func (b *bastion) newSession() (channel, error) { return nil, errors.ErrUnsupported }
func (b *bastion) ping() error                  { return nil }
func (b *bastion) heard() bool                  { return false }
func (b *bastion) wait() error                  { return nil }
func (b *bastion) close()                       {}

func (b *bastion) dial(context.Context, string, int) (net.Conn, error) {
	b.logins.Add(1)
	b.most.Store(max(b.most.Load(), b.underWay.Add(1)))
	return &slowLogin{bastion: b}, nil
}

// slowLogin is the connection of such a login.
type slowLogin struct {
	net.Conn
	bastion *bastion
	over    sync.Once
}

func (s *slowLogin) Write(p []byte) (int, error) { return len(p), nil }
func (s *slowLogin) RemoteAddr() net.Addr        { return &net.TCPAddr{} }
func (s *slowLogin) LocalAddr() net.Addr         { return &net.TCPAddr{} }
func (s *slowLogin) Close() error                { return nil }

func (s *slowLogin) Read([]byte) (int, error) {
	time.Sleep(time.Second)
	s.over.Do(func() { s.bastion.underWay.Add(-1) })
	return 0, io.EOF
}

// lend has a jump host be connected already.
func (b *bastion) lend(t *testing.T, c *Client, name string) {
	t.Helper()
	p, err := c.sharedHop(endpoint{Query: config.Query{Host: name}})
	require.NoError(t, err)
	p.attempt = &attempt{done: make(chan struct{}), conn: &connection{link: b, done: make(chan struct{})}, ended: time.Now()}
	close(p.attempt.done)
}

// A controller that starts connects to all hosts at once. However many they are, a jump
// host has only so many logins under way, and all of them all the time.
func TestManyHostsBehindTwoBastions(t *testing.T) {
	t.Parallel()
	hosts := 10_000 / 2 // behind each bastion
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		hosts /= 10 // the race detector has a limit of some 8,000 goroutines
	}
	file := filepath.Join(t.TempDir(), "ssh_config")
	require.NoError(t, os.WriteFile(file, []byte(`
Host a-*
  ProxyJump bastion-a
Host b-*
  ProxyJump bastion-b
Host *
  IdentityAgent none
  IdentityFile none
  UserKnownHostsFile none
  GlobalKnownHostsFile none
`), 0o600))
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options{ConfigFile: file, OpenSSH: "none", ConnectTimeout: time.Hour})
		require.NoError(t, err)
		var a, b bastion
		a.lend(t, c, "bastion-a")
		b.lend(t, c, "bastion-b")
		begun := time.Now()
		var all sync.WaitGroup
		for i := range hosts {
			for _, side := range []string{"a", "b"} {
				all.Go(func() {
					_, err := c.Run(t.Context(), remote.Host{Name: fmt.Sprintf("%s-%d", side, i)}, remote.Command{Args: []string{"true"}})
					if remote.ClassOf(err) != remote.Unreachable {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		for _, side := range []*bastion{&a, &b} {
			require.EqualValues(t, hosts, side.logins.Load(), "each host is tried once")
			require.Equal(t, int32(dialsPerJump), side.most.Load())
		}
		require.Equal(t, time.Duration((hosts+dialsPerJump-1)/dialsPerJump)*time.Second, time.Since(begun))
		c.Close()
	})
}
