package sshclient

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

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
			c, err := New(Options{ConfigFile: "none", OpenSSH: "none", ConnectTimeout: time.Second})
			require.NoError(t, err)
			defer c.Close()
			host := remote.Host{Name: "gpu-01.example"}
			_, err = c.Run(t.Context(), host, remote.Command{Args: []string{"true"}})
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
