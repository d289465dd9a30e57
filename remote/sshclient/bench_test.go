package sshclient_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// fleet is 100 addresses of one real sshd, as hosts of their own.
func fleet(b *testing.B) (*sshd, []remote.Host, string) {
	s := startSSHD(b, "MaxStartups 1000", "ListenAddress 0.0.0.0:22022")
	var hosts []remote.Host
	var known strings.Builder
	for i := range 100 {
		address := fmt.Sprintf("127.78.0.%d", i+1)
		hosts = append(hosts, remote.Host{Name: address, Port: 22022})
		fmt.Fprintf(&known, "[%s]:22022 %s", address, s.read(b, "hostkey.pub"))
	}
	s.write(b, "known_hosts", known.String())
	return s, hosts, s.config(b)
}

// BenchmarkCold is a first command on each of 100 hosts, 64 at a time, and
// BenchmarkColdOpenSSH the same by ssh processes.
func BenchmarkCold(b *testing.B) {
	_, hosts, config := fleet(b)
	for b.Loop() {
		c, err := sshclient.New(sshclient.Options{ConfigFile: config})
		require.NoError(b, err)
		for _, r := range remote.Each(b.Context(), hosts, 64, func(ctx context.Context, h remote.Host) (remote.Output, error) {
			return c.Run(ctx, h, remote.Command{Args: []string{"true"}})
		}) {
			require.NoError(b, r.Err)
		}
		c.Close()
	}
}

func BenchmarkColdOpenSSH(b *testing.B) {
	_, hosts, config := fleet(b)
	for b.Loop() {
		slots := make(chan struct{}, 64)
		var all sync.WaitGroup
		for _, h := range hosts {
			slots <- struct{}{}
			all.Go(func() {
				ssh := exec.Command("ssh", "-F", config, "-p", "22022", "-o", "BatchMode=yes", h.Name, "true")
				out, err := ssh.CombinedOutput()
				require.NoError(b, err, "%s", out)
				<-slots
			})
		}
		all.Wait()
	}
}

// BenchmarkWarm is a command on each of 100 hosts over open connections.
func BenchmarkWarm(b *testing.B) {
	_, hosts, config := fleet(b)
	c := newClient(b, sshclient.Options{ConfigFile: config})
	for b.Loop() {
		for _, r := range remote.Each(b.Context(), hosts, 64, func(ctx context.Context, h remote.Host) (remote.Output, error) {
			return c.Run(ctx, h, remote.Command{Args: []string{"true"}})
		}) {
			require.NoError(b, r.Err)
		}
	}
}
