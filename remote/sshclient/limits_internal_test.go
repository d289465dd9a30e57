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
		require.NoError(t, c.Close())
	})
}

func TestEnoughPorts(t *testing.T) {
	named := []remote.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	at := func(address string, ports ...int) (hosts []remote.Host) {
		for i, port := range ports {
			hosts = append(hosts, remote.Host{Name: fmt.Sprint(address, i), Address: address, Port: port})
		}
		return hosts
	}
	for name, row := range map[string]struct {
		hosts   []remote.Host
		content string
		want    string // in the error, if there is one
	}{
		"as many names as ports":      {named, "32768\t32771\n", ""},
		"more names than ports":       {named, "32768\t32768\n", ""},
		"more ports of one address":   {at("10.0.0.1", 1022, 1023, 1024), "1\t1\n", ""},
		"as many at one address":      {at("10.0.0.1", 22, 0, 22), "10\t12\n", ""},
		"too many at one address":     {at("10.0.0.1", 22, 0, 22), "10\t11\n", "3 hosts at 10.0.0.1:22 need 3 local ports and there are 2: extend net.ipv4.ip_local_port_range"},
		"too many at one of two":      {append(at("10.0.0.1", 22, 22), at("fd00::1", 22, 22, 22)...), "10\t11\n", "3 hosts at [fd00::1]:22"},
		"enough at each of two":       {append(at("10.0.0.1", 22, 22), at("fd00::1", 22, 22)...), "10\t11\n", ""},
		"no hosts":                    {nil, "10\t10\n", ""},
		"a range that can't be read":  {at("10.0.0.1", 22, 22), "", ""},
		"a range with half of it":     {at("10.0.0.1", 22, 22), "10\n", ""},
		"a range that is upside down": {at("10.0.0.1", 22, 22), "11 10\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := enoughPorts(row.hosts, row.content)
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.want)
			require.Equal(t, remote.Configuration, remote.ClassOf(err))
		})
	}
	require.NoError(t, EnoughPorts(named), "on this machine")
}
