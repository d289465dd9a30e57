package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot"
)

// Over real sshd, sudo and etcd: a shard moves away while a report is under way, since a process ignores
// SIGTERM for its grace of ten minutes. When the controller that got the shard is killed, the first one
// enforces it again at once.
func TestAShardComesBackWhileAReportIsUnderWay(t *testing.T) {
	t.Parallel()
	hosts := []string{"gpu-01", "gpu-03", "gpu-05", "gpu-08"} // of three shards
	s := &sharing{electors: newElectors(t, hosts...), count: 4, judged: make(map[snapshot.Hostname]map[string]time.Time)}
	policy := filepath.Join(s.dir, "policy.yaml")
	require.NoError(t, os.WriteFile(policy, []byte("defaults:\n  non-env-processes: true\n  grace: 10m\n  kill: true\n"), 0o600))
	names := s.names()
	flags := []string{"--policy", policy, "--shards", "4"}
	first := s.join(names[0], flags...)
	s.judges(names[:1]...)
	moved := ""
	for host, by := range s.owners(names[:2]...) {
		if by == names[1] {
			moved = host
		}
	}
	_, err := s.fleet.Host(moved).StartJob(testfleet.Job{User: "alice", IgnoreTerm: true, Uses: []testfleet.Use{{Device: 0, MiB: 100}}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		record, err := os.ReadFile(filepath.Join(s.dir, names[0]+".jsonl"))
		return err == nil && bytes.Contains(record, []byte(`"kind":"report"`))
	}, time.Minute, 50*time.Millisecond)
	second := s.join(names[1], flags...)
	s.judges(names[:2]...)
	s.ended(s.violate(moved))

	second.signal(os.Kill)
	t.Log("after kill -9:", s.ended(s.violate(moved)))
	first.says("this controller has the shard again")
}
