package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// largest is a fleet as large as any that is known.
const largest = 10_000

// evaluateRows judges a cluster with all rules; on every tenth host a process is
// in no environment.
func (b *bench) evaluateRows(context.Context, *sshd.Fleet) ([]row, error) {
	cluster := snapshot.Cluster{Hosts: make([]snapshot.Host, largest)}
	for i := range cluster.Hosts {
		s := oneEach(i)
		if i%10 == 0 {
			s.Processes[0].EID = ""
		}
		cluster.Hosts[i] = snapshot.Host{Name: snapshot.Hostname("gpu-" + strconv.Itoa(i)), Snapshot: s}
	}
	limit := 8 * largest
	policy := enforce.Flags{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, MaxDevicesPerUser: &limit}
	var before, after runtime.MemStats
	findings := 0
	runtime.ReadMemStats(&before)
	medians, err := b.inTurn(timed(func() error {
		plan, _, _ := enforce.Judge(policy, cluster, enforce.Memory{}, time.Now())
		findings = len(plan.Findings)
		return nil
	}))
	if err != nil {
		return nil, err
	}
	runtime.ReadMemStats(&after)
	allocated := (after.TotalAlloc - before.TotalAlloc) / uint64(b.runs+1)
	return []row{{
		what: fmt.Sprintf("Evaluate, %d hosts, all rules", largest), figure: brief(medians[0]), goal: "≤ 150 ms",
		detail: fmt.Sprintf("%d findings; it allocates %d MB; with the cluster and all else %d MB of memory (goal ≤ 400)", findings, allocated/1e6, after.Sys/1e6),
	}}, nil
}

// oneEach is a host with 8 devices, an environment on each, and 12 processes.
func oneEach(seed int) *snapshot.Snapshot {
	s := eightGPUs(seed)
	s.Processes = s.Processes[:12]
	at := s.Environments[0].Creation
	s.Environments = nil
	for i := range s.Devices {
		eid, uid := snapshot.EnvID(strconv.Itoa(2000+i)), snapshot.UID(1000+(seed+i)%50)
		s.Environments = append(s.Environments, snapshot.Environment{
			EID: eid, UID: uid, Username: snapshot.Username(fmt.Sprintf("user%d", uid)), Creation: at, PIDs: []snapshot.PID{snapshot.PID(2000 + i)},
		})
		s.Devices[i].Attachments[0].EID = eid
	}
	for i := range s.Processes {
		index := snapshot.DeviceIndex(i % 8)
		p, env := &s.Processes[i], &s.Environments[index]
		p.EID, p.UID, p.Usage[0].Index = env.EID, &env.UID, index
	}
	return s
}
