package rules_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// TestMore: GPUs of what isn't in a snapshot are in use by its account, and count for its caps. What is in the snapshot
// is judged as ever.
func TestMore(t *testing.T) {
	mallory := snapshot.UID(3)
	attached := func(index int, eid snapshot.EnvID) snapshot.Device {
		return snapshot.Device{
			Index: snapshot.DeviceIndex(index), TotalMemory: snapshot.MiB(81559), Attachments: []snapshot.Attachment{{EID: eid}},
		}
	}
	s := &snapshot.Snapshot{
		Environments: []snapshot.Environment{{EID: "1", UID: 1, Username: "alice"}, {EID: "2", UID: mallory, Username: "mallory"}},
		Devices:      []snapshot.Device{attached(0, "1"), attached(1, "2"), attached(2, "2"), {Index: 3, TotalMemory: snapshot.MiB(81559)}},
		Processes:    []snapshot.Process{{PID: 5, Start: 1, UID: &mallory, Username: "mallory", Usage: []snapshot.DeviceUsage{{Index: 0}}}},
		More:         []snapshot.More{{UID: &mallory, Processes: 100, GPUs: []snapshot.DeviceIndex{0, 1, 3}}},
	}
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, Idle: &enforce.Idle{After: 4 * time.Minute}}}
	var memory controllerMemory
	var plan enforce.Plan
	for minute := range 5 {
		plan = memory.Judge(policy, snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}, noon(minute))
	}
	o := plan.Orders[0].Order
	require.Len(t, o.Terminate, 1, "it is in no environment")
	detached := func(index snapshot.DeviceIndex) bool {
		return slices.ContainsFunc(o.Detach, func(d order.Detachment) bool { return d.Device == index })
	}
	require.True(t, detached(0), "alice doesn't use it")
	require.False(t, detached(1), "mallory does")
	require.True(t, detached(2), "mallory doesn't use this one")
	require.NotEqual(t, gpus.Free, gpus.Of(s)[3].State)

	capped := evaluate(stated{asked: capsOf(map[snapshot.Username]int{"mallory": 2})}, snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}, noon(0))
	count := slices.IndexFunc(capped.Findings, func(f enforce.Finding) bool { return f.Count != nil })
	require.GreaterOrEqual(t, count, 0, "GPUs 1, 2, 3 and 0 are more than 2")
}
