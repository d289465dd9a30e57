package rules_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// spared is a host on which each optional field keeps a rule from acting on something, and rules act on other things.
func spared() *snapshot.Snapshot {
	at := snapshot.DateOf(noon(0).Add(-2 * time.Hour))
	uid := func(n snapshot.UID) *snapshot.UID { return &n }
	s := &snapshot.Snapshot{
		BootID: "6f2c", UTCOffset: new(0), Boot: noon(-300), StateFolder: "8:1/131", FirstUID: uid(1000), Service: new(true),
		Guard: &snapshot.Guard{Mode: snapshot.GuardEnforce}, More: []snapshot.More{{UID: uid(1003), Processes: 1, GPUs: []snapshot.DeviceIndex{6}}},
	}
	for i := range 10 {
		user := []snapshot.Username{"alice", "bob", "carol", "root"}[i%4]
		e := snapshot.Environment{
			EID: snapshot.EnvID(itoa(100 + i)), UID: snapshot.UID(1000 + i%4), Username: user, Creation: at, Since: 100, PIDs: []snapshot.PID{1},
			KernelIDs: []string{"k"}, Config: snapshot.EnvConfig{Name: "one", GPUMemory: snapshot.MiB(1000), GPUs: new(1)}, OwnerMismatch: i == 8,
		}
		d := snapshot.Device{
			Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(80000), UUID: snapshot.GPUUUID("GPU-" + itoa(i)), Name: "H100", UsedMemory: snapshot.MiB(1000),
			Utilization: new(50), Temperature: new(50), Power: new(50.0), PowerLimit: new(100.0), Failed: i == 1, Unidentified: i == 2, Display: new(i == 3),
			ProcessesUnknown: i == 4, Attachments: []snapshot.Attachment{{EID: e.EID, GPUMemory: snapshot.MiB(1000), Time: at, Since: 29000}},
		}
		if i == 5 {
			d.Instances = []snapshot.Instance{{UUID: "MIG-1", Profile: "1g.10gb", Total: snapshot.MiB(9000), Pool: "7"}, {UUID: "MIG-2", Profile: "1g.10gb", Pool: "8"}}
			d.Attachments[0].Instances = []snapshot.GPUUUID{"MIG-1"}
		}
		s.Environments, s.Devices = append(s.Environments, e), append(s.Devices, d)
	}
	add := func(pid snapshot.PID, owner snapshot.UID, user snapshot.Username, eid snapshot.EnvID, gpu snapshot.DeviceIndex, change func(*snapshot.Process)) {
		p := snapshot.Process{
			PID: pid, EID: eid, Start: 1000, UID: uid(owner), Username: user, Name: "python", Command: "python train.py",
			Usage: []snapshot.DeviceUsage{{Index: gpu, Memory: snapshot.MiB(500), Type: snapshot.TypeCompute}},
		}
		if change != nil {
			change(&p)
		}
		s.Processes = append(s.Processes, p)
	}
	none := func(*snapshot.Process) {}
	for i := range s.Environments { // honest processes, each on its own GPU
		e := &s.Environments[i]
		add(snapshot.PID(10+i), e.UID, e.Username, e.EID, s.Devices[i].Index, nil)
	}
	add(30, 1000, "alice", "", 0, none)
	add(31, 1000, "alice", "102", 0, none)
	add(32, 1000, "alice", "100", 0, func(p *snapshot.Process) { p.Usage[0].Memory = snapshot.MiB(5000) })
	add(33, 1001, "bob", "", 1, none)
	add(34, 1001, "bob", "", 2, none)
	add(35, 1001, "bob", "", 3, func(p *snapshot.Process) { p.Usage[0].Type = snapshot.TypeGraphics })
	add(36, 1001, "bob", "", 0, func(p *snapshot.Process) { p.EnvUnknown = true })
	add(37, 1001, "bob", "", 0, func(p *snapshot.Process) { p.EnvUnknown, p.EnvOverwritten, p.Inherited = true, true, "101" })
	add(38, 1001, "bob", "", 0, func(p *snapshot.Process) { p.NodeMissing, p.NodeHolder = true, 5 })
	add(39, 1001, "bob", "", 0, func(p *snapshot.Process) { p.Protected = "nvidia-persistenced" })
	add(40, 0, "root", "", 0, func(p *snapshot.Process) {
		p.Container = "0123"
		p.ContainerInfo = &snapshot.ContainerInfo{Name: "web", Image: "spared:1", Labels: map[string]string{"a": "b"}, UID: uid(1001), User: "bob", Proof: snapshot.ProofRecord}
	})
	add(41, 1007, "", "", 0, func(p *snapshot.Process) { p.UserUnknown = true })
	add(42, 1006, "dave", "", 0, none) // exempt by name
	add(43, 1001, "bob", "105", 6, none)
	add(44, 1001, "bob", "105", 5, func(p *snapshot.Process) { p.Instances = []snapshot.GPUUUID{"MIG-1"} })
	add(45, 1001, "bob", "105", 5, func(p *snapshot.Process) { p.Instances = []snapshot.GPUUUID{"MIG-2"} })
	add(46, 1001, "bob", "", 0, func(p *snapshot.Process) {
		p.EnvUnknown, p.Unreadable = true, &snapshot.Unreadable{Why: "it is large", ByUser: true}
	})
	add(47, 1001, "bob", "", 0, func(p *snapshot.Process) { p.EnvUnknown, p.Unreadable = true, &snapshot.Unreadable{Why: "it is slow"} })
	add(48, 1002, "carol", "", 0, func(p *snapshot.Process) { p.PrivateCommand, p.Command, p.Name = "python", "", "" })
	return s
}

// strict has every rule on.
func strict() stated {
	return stated{
		all: enforce.Settings{
			NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, EndUnreadable: true, MaxProcessAge: 10 * time.Hour,
			Idle: &enforce.Idle{After: time.Minute}, MaxDuration: time.Hour, MaxDevices: new(2), MaxMemory: new(memory(1 << 40)), MaxEnvs: new(2),
			UnknownOutside: true,
		},
		exempt: func(s enforce.Subject) bool { return s.User == "dave" || s.User == "root" },
	}
}

// acts is what is done on a host.
func acts(s *snapshot.Snapshot) map[string]bool {
	counting := strict()
	counting.all.NonEnvProcesses, counting.all.CountOutside = false, true
	counting.all.Idle = &enforce.Idle{After: 4 * time.Minute, Below: 60, BelowPower: 60, End: true}
	done := make(map[string]bool)
	actsBy(strict(), s, 4, "", done)
	actsBy(counting, s, 6, "counting: ", done)
	return done
}

func actsBy(policy stated, s *snapshot.Snapshot, minutes int, by string, done map[string]bool) {
	s.Boot = noon(-300)
	var m controllerMemory
	for i := range minutes {
		plan := m.Judge(policy, snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}, noon(i))
		for _, o := range plan.Orders {
			for _, t := range o.Order.Terminate {
				done[fmt.Sprintf("%send %d", by, t.Process.PID)] = true
			}
			for _, d := range o.Order.Detach {
				done[fmt.Sprintf("%sdetach %d %s", by, d.Device, d.Environment.EID)] = true
			}
		}
	}
}

// without removes a key of all objects at a path, such as "devices.failed", from a document.
func without(v any, path []string) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			without(item, path)
		}
	case map[string]any:
		if len(path) == 1 {
			delete(v, path[0])
		} else {
			without(v[path[0]], path[1:])
		}
	}
}

// paths are those of all keys of a document.
func paths(v any, at string, all map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			paths(item, at, all)
		}
	case map[string]any:
		for key, value := range v {
			all[at+key] = true
			paths(value, at+key+".", all)
		}
	}
}

// TestAMissingFieldMakesNoRuleActOnMore removes each key in turn from what a host says.
func TestAMissingFieldMakesNoRuleActOnMore(t *testing.T) {
	data := proctest.Try(snapshot.EncodeNative(spared())).OK(t)
	whole := proctest.Try(snapshot.DecodeNative(data)).OK(t)
	before := acts(whole)
	require.Contains(t, before, "end 30")
	require.Contains(t, before, "detach 0 100")
	require.Contains(t, before, "counting: end 30")
	all := make(map[string]bool)
	var document any
	require.NoError(t, json.Unmarshal(data, &document))
	paths(document, "", all)
	require.Greater(t, len(all), 60)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var document any
		require.NoError(t, d.Decode(&document))
		without(document, strings.Split(path, "."))
		cut := proctest.Try(json.Marshal(document)).OK(t)
		s, err := snapshot.DecodeNative(cut)
		if err != nil {
			require.ErrorIs(t, err, snapshot.ErrInvalid, path)
			continue
		}
		for what := range acts(s) {
			require.True(t, before[what], "without %s: %s", path, what)
		}
	}
}
