package rules_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
)

// fleet has hosts of 8 devices, 8 environments and 12 processes, with a violation of each rule on every tenth.
func fleet(hosts int) snapshot.Cluster {
	var c snapshot.Cluster
	at := snapshot.DateOf(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	for h := range hosts {
		s := &snapshot.Snapshot{}
		for i := range 8 {
			eid := snapshot.EnvID(fmt.Sprint(1000 + i))
			capacity := snapshot.MiB(10000)
			s.Environments = append(s.Environments, snapshot.Environment{
				EID: eid, UID: snapshot.UID(1000 + i), Username: snapshot.Username(fmt.Sprintf("user%d", (h*8+i)%500)),
				Config: snapshot.EnvConfig{GPUMemory: capacity}, PIDs: []snapshot.PID{snapshot.PID(100 + i)}, Creation: at,
			})
			s.Devices = append(s.Devices, snapshot.Device{
				Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(81559),
				Attachments: []snapshot.Attachment{{EID: eid, GPUMemory: capacity, Time: at}},
			})
		}
		for i := range 12 {
			p := snapshot.Process{PID: snapshot.PID(5000 + i), EID: snapshot.EnvID(fmt.Sprint(1000 + i%8)), UID: new(snapshot.UID(1000 + i%8))}
			p.Usage = []snapshot.DeviceUsage{{Index: snapshot.DeviceIndex(i % 8), Memory: snapshot.MiB(4000)}}
			if h%10 == 0 && i < 3 {
				p.Usage[0].Index, p.EID = snapshot.DeviceIndex(7), []snapshot.EnvID{"", "1000", "1007"}[i]
				p.Usage[0].Memory = snapshot.MiB(20000)
			}
			s.Processes = append(s.Processes, p)
		}
		c.Hosts = append(c.Hosts, snapshot.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%05d", h)), Snapshot: s})
	}
	return c
}

// shared is a policy that answers each query with the same settings, as one from a file does.
type shared struct {
	stated
	settings *enforce.Settings
}

func (s shared) Settings(enforce.Query) *enforce.Settings { return s.settings }

// BenchmarkJudge judges 10,000 hosts in one cycle after the other: hosts of 1.4.3, and those that report since when
// something counts.
func BenchmarkJudge(b *testing.B) {
	policy := shared{settings: &enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, MaxDevices: new(150)}}
	for name, since := range map[string]snapshot.StartTime{"1.4.3": 0, "ours": 1} {
		b.Run(name, func(b *testing.B) {
			cluster := fleet(10_000)
			for _, h := range cluster.Hosts {
				h.Snapshot.Boot = noon(-600)
				for i := range h.Snapshot.Devices {
					h.Snapshot.Environments[i].Since, h.Snapshot.Devices[i].Attachments[0].Since = since, since
				}
			}
			b.ReportAllocs()
			var memory controllerMemory
			for minute := 0; b.Loop(); minute++ {
				memory.Judge(policy, cluster, noon(minute))
			}
		})
	}
}

// crowded is a host that says as much as is read of one: n environments, all on one device, with a process each.
func crowded(n int) snapshot.Cluster {
	at := snapshot.DateOf(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	uid := snapshot.UID(1001)
	s := &snapshot.Snapshot{Devices: []snapshot.Device{{TotalMemory: snapshot.MiB(81559)}}}
	for i := range n {
		eid := snapshot.EnvID(fmt.Sprint(1000 + i))
		s.Environments = append(s.Environments, snapshot.Environment{EID: eid, UID: uid, Username: "alice", Creation: at})
		s.Devices[0].Attachments = append(s.Devices[0].Attachments, snapshot.Attachment{EID: eid, Time: at})
		s.Processes = append(s.Processes, snapshot.Process{
			PID: snapshot.PID(5000 + i), Start: 1, EID: eid, UID: &uid, Usage: []snapshot.DeviceUsage{{Memory: snapshot.MiB(4)}},
		})
	}
	return snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}
}

// BenchmarkCrowded judges a single host that lies as much as it can: it must not delay the others.
func BenchmarkCrowded(b *testing.B) {
	cluster := crowded(8192)
	policy := stated{all: enforce.Settings{
		NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, Idle: &enforce.Idle{After: time.Hour},
		MaxDevices: new(0), MaxMemory: new(memory(1)), MaxEnvs: new(1), Warn: enforce.Warn{Cycles: 1},
	}}
	for b.Loop() {
		plan := evaluate(policy, cluster, noon(0))
		owners := notify.NewRecipients(cluster)
		for i := range plan.Findings {
			notify.Messages(&plan.Findings[i], owners, noon(0))
		}
	}
}

func TestTwoPeopleShareAFleet(t *testing.T) {
	cluster := parseCluster(t, "0 | env 1 alice u1001 | env 2 bob u1002 | dev 0 1@01 2@02 | dev 1 1@01 2@02 | dev 2 1@01 2@02")
	cluster.Hosts = slices.Repeat(cluster.Hosts, 2500)
	for i := range cluster.Hosts {
		cluster.Hosts[i].Name = snapshot.Hostname(fmt.Sprint(i))
	}
	begun := time.Now()
	require.Len(t, items(evaluate(stated{list: capList{listed("none", 0, together)}}, cluster, noon(0))), 15000)
	require.Less(t, time.Since(begun), 30*time.Second)
}

func TestManyAskWhatCounts(t *testing.T) {
	text := "a"
	for i := range 1024 {
		text += " | dev " + itoa(i)
	}
	plan := evaluate(stated{list: slices.Repeat(capList{listed("three", 3)}, 64)}, parseCluster(t, text), noon(0))
	begun := time.Now()
	for i := range 1024 {
		require.Len(t, plan.Counts.On("a", snapshot.Username(itoa(i)))[63].GPUs, 1024)
	}
	require.Less(t, time.Since(begun), 30*time.Second)
}
