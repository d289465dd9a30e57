package sshclient_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

func TestProbe(t *testing.T) {
	f := startFake(t, nil)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connects, and says nothing
	require.NoError(t, err)
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	at := func(l net.Listener) string {
		return fmt.Sprintf("  HostName 127.0.0.1\n  Port %d", l.Addr().(*net.TCPAddr).Port)
	}
	config := f.config("Host silent", at(silent), "Host closed", at(closed),
		"Host jump", "  ProxyJump gpu", "Host command", "  ProxyCommand true", "Host nowhere", "  HostName nowhere.invalid")
	for name, want := range map[string]remote.Class{
		"gpu": "", "silent": remote.Timeout, "closed": remote.Unreachable, "nowhere": remote.Unreachable, "jump": "no probe", "command": "no probe",
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: config})
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			switch err := c.Probe(ctx, remote.Host{Name: name}); want {
			case "":
				require.NoError(t, err)
			case "no probe":
				require.ErrorIs(t, err, remote.ErrNoProbe)
			default:
				requireClass(t, want, err)
			}
		})
	}
	require.Zero(t, f.logins.Load(), "a probe does not log in")
}

// BenchmarkProbe is what a host that is down costs each time that it is tried.
func BenchmarkProbe(b *testing.B) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	require.NoError(b, closed.Close())
	c := newClient(b, sshclient.Options{ConfigFile: "none"})
	port := closed.Addr().(*net.TCPAddr).Port
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		require.Error(b, c.Probe(ctx, remote.Host{Name: "127.0.0.1", Port: port}))
		cancel()
	}
}
