package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// Over real sshd, sudo and etcd: a controller that reaches etcd and no host, as without a key, takes no
// shard from one that enforces it.
func TestAControllerThatReachesNoHostJoins(t *testing.T) {
	t.Parallel()
	hosts := []string{"gpu-01", "gpu-03", "gpu-05", "gpu-08"} // of three shards
	s := &sharing{electors: newElectors(t, hosts...), count: 4, judged: make(map[snapshot.Hostname]map[string]time.Time)}
	names := s.names()
	flags := []string{"--non-env-processes", "--shards", "4"}
	s.join(names[0], flags...)
	s.judges(names[:1]...)

	config, err := os.ReadFile(s.ssh)
	require.NoError(t, err)
	s.ssh = filepath.Join(s.dir, "wrong")
	require.NoError(t, os.WriteFile(s.ssh, regexp.MustCompile(`(?m)Port .*$`).ReplaceAll(config, []byte("Port 1")), 0o600))
	second := s.join(names[1], flags...)
	require.Eventually(t, func() bool { return strings.Contains(second.said(), "connection refused") }, time.Minute, 50*time.Millisecond)
	for range 2 {
		time.Sleep(2 * time.Second)
		s.violateAll()
	}
	s.judges(names[0])
}
