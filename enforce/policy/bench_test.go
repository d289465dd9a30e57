package policy_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

// BenchmarkJudge runs the rules of policy.example.yaml over 10,000 hosts with
// 8 devices, 8 environments and 12 processes each.
func BenchmarkJudge(b *testing.B) {
	data, err := os.ReadFile("../../policy.example.yaml")
	require.NoError(b, err)
	file, err := policy.Parse("policy.example.yaml", data)
	require.NoError(b, err)
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	cluster := fleet(10_000, now)
	b.ReportAllocs()
	var memory enforce.Memory
	for b.Loop() {
		now = now.Add(10 * time.Second)
		_, memory, _ = enforce.Judge(file, cluster, memory, now)
	}
}

func fleet(hosts int, now time.Time) snapshot.Cluster {
	var c snapshot.Cluster
	at, uid := snapshot.DateOf(now.Add(-time.Hour)), snapshot.UID(1000)
	for h := range hosts {
		s := &snapshot.Snapshot{}
		for i := range 8 {
			eid := snapshot.EnvID(fmt.Sprint(1000 + i))
			s.Environments = append(s.Environments, snapshot.Environment{
				EID: eid, UID: uid, Username: snapshot.Username(fmt.Sprintf("user%d", (h*8+i)%20000)), PIDs: []snapshot.PID{7}, Creation: at,
			})
			s.Devices = append(s.Devices, snapshot.Device{
				Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(81559), Attachments: []snapshot.Attachment{{EID: eid, Time: at}},
			})
		}
		for i := range 12 {
			s.Processes = append(s.Processes, snapshot.Process{
				PID: snapshot.PID(5000 + i), Start: 7, UID: &uid, Name: "python", EID: snapshot.EnvID(fmt.Sprint(1000 + i%8)),
				Usage: []snapshot.DeviceUsage{{Index: snapshot.DeviceIndex(i % 8), Memory: snapshot.MiB(4000)}},
			})
		}
		c.Hosts = append(c.Hosts, snapshot.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%05d", h)), Labels: map[string]string{"gpu": "h100"}, Snapshot: s})
	}
	return c
}
