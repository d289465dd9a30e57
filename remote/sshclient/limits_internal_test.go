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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// bastion is a jump host. Every login through it takes a second, or as long as it says, and fails.
type bastion struct {
	takes                  func(host string) time.Duration
	logins, underWay, most atomic.Int32
}

func (b *bastion) newSession() (channel, error) { return nil, errors.ErrUnsupported }
func (b *bastion) ping() error                  { return nil }
func (b *bastion) heard() bool                  { return false }
func (b *bastion) wait() error                  { return nil }
func (b *bastion) close()                       {}

func (b *bastion) dial(_ context.Context, host string, _ int) (net.Conn, error) {
	b.logins.Add(1)
	b.most.Store(max(b.most.Load(), b.underWay.Add(1)))
	takes := time.Second
	if b.takes != nil {
		takes = b.takes(host)
	}
	return &slowLogin{bastion: b, takes: takes}, nil
}

// slowLogin is the connection of such a login.
type slowLogin struct {
	net.Conn
	bastion *bastion
	takes   time.Duration
	over    sync.Once
}

func (s *slowLogin) Write(p []byte) (int, error) { return len(p), nil }
func (s *slowLogin) RemoteAddr() net.Addr        { return &net.TCPAddr{} }
func (s *slowLogin) LocalAddr() net.Addr         { return &net.TCPAddr{} }
func (s *slowLogin) Close() error                { return nil }

func (s *slowLogin) Read([]byte) (int, error) {
	time.Sleep(s.takes)
	s.over.Do(func() { s.bastion.underWay.Add(-1) })
	return 0, io.EOF
}

// lend has a jump host be connected already.
func (b *bastion) lend(t *testing.T, c *Client, name string) {
	t.Helper()
	p := proctest.Try(c.shared(endpoint{Lookup: config.Lookup{Host: name}})).OK(t)
	p.attempt = &attempt{done: make(chan struct{}), conn: &connection{link: b, done: make(chan struct{})}, ended: time.Now()}
	close(p.attempt.done)
}

// behind is an ssh_config with these jump hosts and no file of the user.
func behind(t *testing.T, jumps string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ssh_config")
	require.NoError(t, os.WriteFile(file, []byte(jumps+"Host *\n IdentityAgent none\n IdentityFile none\n"+
		" UserKnownHostsFile none\n GlobalKnownHostsFile none\n"), 0o600))
	return file
}

// A controller that starts connects to all hosts at once. However many they are, a jump
// host has only so many logins under way, and all of them all the time.
func TestManyHostsBehindTwoBastions(t *testing.T) {
	t.Parallel()
	hosts := 10_000 / 2 // behind each bastion
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		hosts /= 10 // the race detector has a limit of some 8,000 goroutines
	}
	file := behind(t, "Host a-*\n ProxyJump bastion-a\nHost b-*\n ProxyJump bastion-b\n")
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{ConfigFile: file, OpenSSH: "none", ConnectTimeout: time.Hour})
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

// Hosts that are slow behind a jump host, or hang, delay the others there by no more than a moment.
func TestSlowHostsBehindABastion(t *testing.T) {
	file := behind(t, "Host *-*\n ProxyJump bastion\n")
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{ConfigFile: file, OpenSSH: "none"})
		b := bastion{takes: func(host string) time.Duration {
			if strings.HasPrefix(host, "slow") {
				return time.Minute
			}
			return time.Second
		}}
		b.lend(t, c, "bastion")
		try := func(name string) {
			require.Error(t, proctest.Try(c.Run(t.Context(), remote.Host{Name: name}, remote.Command{Args: []string{"true"}})).Err)
		}
		var all sync.WaitGroup
		for i := range 2 * dialsPerJump {
			all.Go(func() { try(fmt.Sprintf("slow-%d", i)) })
		}
		synctest.Wait()
		begun := time.Now()
		try("gpu-1")
		require.LessOrEqual(t, time.Since(begun), 6*time.Second)
		all.Wait()
		c.Close()
	})
}

// silent is a link from which only what a test says is heard.
type silent struct {
	carrier
	read atomic.Bool
}

func (s *silent) heard() bool { return s.read.Swap(false) }
func (s *silent) close()      {}

// A host is asked for a sign of life only if nothing was heard in an interval, and given up only
// after so many intervals in a row without an answer and without anything else.
func TestKeepAliveAsksSilentHosts(t *testing.T) {
	for name, c := range map[string]struct {
		intervals string // h: something was heard; s: silence; a: silence, and then an answer
		asked     int
		ended     bool
	}{
		"it sends all the time":            {"hhhhhhhh", 0, false},
		"it is silent, and answers":        {"aaaaaa", 6, false},
		"it is silent at last":             {"hhhs", 1, false},
		"it sends more while it is asked":  {"sshsshssh", 1, false},
		"one interval less":                {"sss", 1, false},
		"no answer":                        {"ssss", 1, true},
		"no answer after it sent":          {"hssss", 1, true},
		"what it sent before doesn't help": {"sshsss", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			over := new(silent)
			conn := &connection{
				link: over, done: make(chan struct{}), interval: time.Hour, count: 3, timer: time.NewTimer(time.Hour),
			}
			defer conn.timer.Stop()
			asked := 0
			for _, what := range c.intervals {
				over.read.Store(what == 'h')
				if conn.asks() {
					asked++
				}
				if what == 'a' {
					conn.asked, conn.missed = false, 0
				}
			}
			require.Equal(t, c.asked, asked)
			require.Equal(t, c.ended, !conn.alive())
		})
	}
}

// The library can lose a NewSession that begins while the connection ends: it
// never returns. No caller may wait for it forever.
func TestBlockedCallIsAbandoned(t *testing.T) {
	l := &connection{done: make(chan struct{})}
	l.end(errors.New("the peer has gone"))
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	_, err := within(context.Background(), l, func() (struct{}, error) {
		<-release
		return struct{}{}, nil
	})
	require.ErrorContains(t, err, "the peer has gone")
}

// A name service that fails reads differently from a name that isn't there, and both from a host that is down.
func TestNamesThatCannotBeLookedUp(t *testing.T) { //nolint:paralleltest // it replaces Go's resolver
	before, dir := net.DefaultResolver, t.TempDir()
	t.Cleanup(func() { net.DefaultResolver = before })
	require.NoError(t, proctest.WriteProgram(filepath.Join(dir, "getent"), []byte("#!/bin/sh\nexit 2\n")))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for name, dial := range map[string]func(ctx context.Context, network, address string) (net.Conn, error){
		"the server refuses": func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") },
		"the server is silent": func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: dial}
			c := New(Options{ConfigFile: "none", OpenSSH: "none", ConnectTimeout: time.Second})
			defer c.Close()
			host := remote.Host{Name: "gpu-01.example"}
			_, err := c.Run(t.Context(), host, remote.Command{Args: []string{"true"}})
			limited, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, way := c.Way(limited, host)
			probed, end := context.WithTimeout(t.Context(), time.Second)
			defer end()
			for _, err := range []error{err, way, c.Probe(probed, host)} {
				require.Equal(t, remote.Unreachable, remote.ClassOf(err), "%v", err)
				require.ErrorContains(t, err, "the name gpu-01.example can't be looked up")
				require.ErrorIs(t, err, remote.ErrNoNames)
				require.Contains(t, remote.NextStepOf(err), "resolv.conf")
			}
		})
	}
}
