package policy_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// judged is how many processes end on a host of label h100 on which bob has one outside of environments, at a moment.
func judged(t *testing.T, text string, at time.Time) int {
	process := snapshot.Process{PID: 5, Start: 1, UID: new(snapshot.UID(1002)), Username: "bob", Name: "python", Usage: []snapshot.DeviceUsage{{Index: 3}}}
	s := &snapshot.Snapshot{Devices: []snapshot.Device{{Index: 3, UUID: "GPU-1", TotalMemory: snapshot.MiB(81559)}}, Processes: []snapshot.Process{process}}
	cluster := snapshot.Cluster{Hosts: []snapshot.Host{{Name: "gpu-01", Labels: map[string]string{"gpu": "h100"}, Snapshot: s}}}
	ended := 0
	plan, _, _ := rules.Judge(parse(t, text), cluster, enforce.Memory{}, at)
	for _, r := range plan.Orders {
		ended += len(r.Order.Terminate)
	}
	return ended
}

// A rule on weekdays from 8 to 18, in the zone of the file.
func TestScheduledRule(t *testing.T) {
	const office = "timezone: Europe/Berlin\nschedules: {office: [{days: mon-fri, hours: 8-18}]}\noverrides:\n  - {when: office, set: {non-env-processes: true}}\n"
	for at, want := range map[string]int{
		"2026-11-20T10:00:00+01:00": 1, // a Friday
		"2026-11-20T08:00:00+01:00": 1,
		"2026-11-20T16:59:59Z":      1,
		"2026-07-17T06:00:00Z":      1, // summer time

		"2026-11-20T07:59:59+01:00": 0,
		"2026-11-20T17:00:00Z":      0,
		"2026-11-21T10:00:00+01:00": 0, // a Saturday
		"2026-11-22T10:00:00+01:00": 0,
		"2026-07-17T05:59:00Z":      0,
	} {
		require.Equal(t, want, judged(t, office, proctest.Try(time.Parse(time.RFC3339, at)).OK(t)), at)
	}
}

func TestExemptionsInJudgement(t *testing.T) {
	const on = "defaults: {non-env-processes: true}\n"
	for text, want := range map[string]int{
		"":                                  1,
		"exempt: {users: [carol]}":          1,
		"exempt: {uids: [1003]}":            1,
		"exempt: {hosts: [gpu-02]}":         1,
		"exempt: {devices: [\"gpu-02:3\"]}": 1,
		"exempt: {devices: [GPU-2]}":        1,
		"exempt: {processes: [Xorg]}":       1,
		"exempt: {processes: [{name: python, user: carol}]}":                  1,
		"exempt: {environments: [{user: bob, name: train}]}":                  1,
		"overrides: [{hosts: [gpu-02], set: {non-env-processes: false}}]":     1,
		"overrides: [{labels: {gpu: a100}, set: {non-env-processes: false}}]": 1,

		"exempt: {users: [bob]}":                                              0,
		"groups: {staff: [bob]}\nexempt: {users: [\"@staff\"]}":               0,
		"exempt: {uids: [1002]}":                                              0,
		"exempt: {hosts: [\"gpu-[01-09]\"]}":                                  0,
		"exempt: {devices: [\"gpu-01:[2-3]\"]}":                               0,
		"exempt: {devices: [GPU-1]}":                                          0,
		"exempt: {devices: [\"gpu-01:4\"]}":                                   0, // it may be this one: another fell off
		"exempt: {processes: [pyth*]}":                                        0,
		"exempt: {processes: [{name: python, user: bob}]}":                    0,
		"overrides: [{hosts: [gpu-01], set: {non-env-processes: false}}]":     0,
		"overrides: [{labels: {gpu: h100}, set: {non-env-processes: false}}]": 0,
		"overrides: [{users: [bob], set: {warn: {cycles: 2}}}]":               0,
	} {
		require.Equal(t, want, judged(t, on+text+"\n", time.Now()), text)
	}
}

// TestSeveralGoroutinesAskAPolicy: a large fleet is judged by as many as there are processors.
func TestSeveralGoroutinesAskAPolicy(t *testing.T) {
	processors := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(processors)
	data := proctest.ReadFile(t, "../../policy.example.yaml")
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	cluster := fleet(600, now)
	for i := 0; i < len(cluster.Hosts); i += 10 {
		cluster.Hosts[i].Snapshot.Processes[0].EID = ""
	}
	var plans []enforce.Plan
	for _, n := range []int{1, 2} {
		runtime.GOMAXPROCS(n)
		file := proctest.Try(policy.Parse("policy.example.yaml", data)).OK(t)
		plan, _, _ := rules.Judge(file, cluster, enforce.Memory{}, now)
		plan.Counts = nil // it is found out once it is asked for
		plans = append(plans, plan)
	}
	require.Len(t, plans[0].Findings, 60)
	require.Equal(t, plans[0], plans[1])
}

// BenchmarkJudge runs the rules of policy.example.yaml over 10,000 hosts of 8 devices, 8 environments and 12 processes.
func BenchmarkJudge(b *testing.B) {
	data := proctest.ReadFile(b, "../../policy.example.yaml")
	file := proctest.Try(policy.Parse("policy.example.yaml", data)).OK(b)
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	cluster := fleet(10_000, now)
	b.ReportAllocs()
	var memory enforce.Memory
	for b.Loop() {
		now = now.Add(10 * time.Second)
		_, memory, _ = rules.Judge(file, cluster, memory, now)
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
