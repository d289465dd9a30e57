package enforce_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// outsideAll are processes of a user outside all environments, on device 0.
func outsideAll(user snapshot.Username, uid snapshot.UID, pids ...int) (list []snapshot.Process) {
	for _, pid := range pids {
		list = append(list, snapshot.Process{
			PID: snapshot.PID(pid), Start: 1, UID: &uid, Username: user, Usage: []snapshot.DeviceUsage{{Index: 0}},
		})
	}
	return list
}

func numbers(from, count int) (list []int) {
	for i := range count {
		list = append(list, from+i)
	}
	return list
}

func hostWith(name snapshot.Hostname, processes ...[]snapshot.Process) snapshot.Host {
	return snapshot.Host{Name: name, Snapshot: &snapshot.Snapshot{Devices: []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(81559)}}, Processes: slices.Concat(processes...)}}
}

// A user who starts nine thousand processes, or a host that makes them up, fills
// neither the memory nor the file; and the warning periods of others don't begin again.
func TestAFloodLeavesTheTimesOfOthers(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, Warn: enforce.Warn{For: 6 * time.Minute}}, fleet: enforce.Fleet{TellUsers: true}}
	quiet := snapshot.Cluster{Hosts: []snapshot.Host{hostWith("a", outsideAll("alice", 1, 5)), hostWith("b", outsideAll("mallory", 3, 5))}}
	flood := snapshot.Cluster{Hosts: []snapshot.Host{
		hostWith("a", outsideAll("alice", 1, 5, 6), outsideAll("mallory", 3, numbers(100, 9_000)...), outsideAll("bob", 2, 7)),
		hostWith("b", outsideAll("mallory", 3, 5)),
	}}
	var memory controllerMemory
	memory.Judge(policy, quiet, noon(0))
	notified, said := map[string]bool{}, 0
	for minute := 1; minute <= 7; minute++ {
		plan := memory.Judge(policy, flood, noon(minute))
		present := map[string]int{}
		for key := range memory.Present {
			_, rest, _ := strings.Cut(key, "/")
			host, _, _ := strings.Cut(rest, "/")
			present[host]++
		}
		require.LessOrEqual(t, present["a"], 8192)
		require.Greater(t, present["a"], 8000)
		for _, e := range memory.events {
			if e.Kind == enforce.EventNote && strings.Contains(e.Text, "too many findings") {
				require.Equal(t, snapshot.Hostname("a"), e.Host)
				said++
			}
			notified[e.ID] = notified[e.ID] || e.Kind == enforce.EventNotify
		}
		ended := map[string]bool{}
		for _, o := range plan.Orders {
			for _, p := range o.Order.Terminate {
				ended[fmt.Sprintf("%s/%d", o.Host, p.Process.PID)] = true
			}
		}
		require.Equal(t, minute >= 6, ended["a/5"], "alice's first, minute %d", minute)
		require.Equal(t, minute >= 6, ended["b/5"], "on another host")
		require.Equal(t, minute >= 7, ended["a/7"], "bob's began with the flood")
		require.Equal(t, minute >= 7, ended["a/100"], "those of the flood are not spared")
	}
	file, err := json.Marshal(memory.Memory)
	require.NoError(t, err)
	require.Less(t, len(file), 2<<20)
	require.Equal(t, 1, said, "the administrator is told once")
	for _, id := range []string{"a/5/1", "a/6/1", "a/7/1", "b/5/1"} {
		require.True(t, notified["non-env-processes/"+id], id)
	}
	known := map[snapshot.Hostname]int{}
	for _, f := range memory.Findings {
		known[f.Host]++
	}
	require.Equal(t, map[snapshot.Hostname]int{"a": 1024 + 3, "b": 1}, known)

	memory.Judge(policy, quiet, noon(8))
	require.Len(t, memory.Findings, 2, "it is over")
	require.Len(t, memory.Present, 4)
}

// As many attachments as a host can have: the idle times of others stay.
func TestAFloodOfIdleDevices(t *testing.T) {
	policy := stated{all: enforce.Settings{Idle: &enforce.Idle{After: 4 * time.Minute}}}
	attached := func(index int, eid snapshot.EnvID) snapshot.Device {
		return snapshot.Device{Index: snapshot.DeviceIndex(index), TotalMemory: snapshot.MiB(81559), Attachments: []snapshot.Attachment{{EID: eid}}}
	}
	taken := &snapshot.Snapshot{Environments: []snapshot.Environment{
		{EID: "1", UID: 1, Username: "alice"}, {EID: "2", UID: 3, Username: "mallory"},
	}}
	taken.Devices = append(taken.Devices, attached(0, "1"))
	for i := range 9_000 {
		taken.Devices = append(taken.Devices, attached(1+i, "2"))
	}
	var memory controllerMemory
	for minute := range 5 {
		plan := memory.Judge(policy, snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: taken}}}, noon(minute))
		require.Len(t, memory.Idle, 8192)
		require.Contains(t, memory.Idle, "a/alice/1/0")
		detached := len(plan.Orders) > 0 && slices.ContainsFunc(plan.Orders[0].Order.Detach, func(d order.Detachment) bool { return d.Device == 0 })
		require.Equal(t, minute >= 4, detached)
	}
}
