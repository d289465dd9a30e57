package usage_test

import (
	"cmp"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
)

var begin = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// host is a host with two devices in the making.
type host struct{ snapshot.Snapshot }

func newHost() *host {
	h := new(host)
	for i := range 2 {
		h.Devices = append(h.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), Name: "H100", Utilization: new(90)})
	}
	return h
}

func (h *host) attach(device int, eid snapshot.EnvID, user snapshot.Username) *host {
	h.Devices[device].Attachments = append(h.Devices[device].Attachments, snapshot.Attachment{EID: eid})
	if h.Environment(eid) == nil {
		h.Environments = append(h.Environments, snapshot.Environment{EID: eid, UID: uidOf(user), Username: user})
	}
	return h
}

func (h *host) run(device int, eid snapshot.EnvID, user snapshot.Username) *host {
	p := snapshot.Process{PID: snapshot.PID(100 + len(h.Processes)), EID: eid, Username: user}
	p.UID = new(uidOf(user))
	p.Usage = []snapshot.DeviceUsage{{Index: snapshot.DeviceIndex(device), Memory: snapshot.MiB(1024)}}
	h.Processes = append(h.Processes, p)
	return h
}

func uidOf(user snapshot.Username) snapshot.UID {
	if user == "root" {
		return 0
	}
	return 1000 + snapshot.UID(user[0])
}

func (h *host) with(change func(*snapshot.Snapshot)) *host { change(&h.Snapshot); return h }

func clusterOf(hosts map[snapshot.Hostname]*host) (c snapshot.Cluster) {
	for _, name := range []snapshot.Hostname{"a", "b", "c"} {
		if h, there := hosts[name]; there && h == nil {
			c.Hosts = append(c.Hosts, snapshot.Host{Name: name, Err: errors.New("no route")})
		} else if there {
			c.Hosts = append(c.Hosts, snapshot.Host{Name: name, Snapshot: &h.Snapshot})
		}
	}
	return c
}

func on(h *host) map[snapshot.Hostname]*host { return map[snapshot.Hostname]*host{"a": h} }

// gib is the memory of a process, for 100 seconds.
const gib = 1024 * 100

// whatCounts is what 100 seconds amount to, for what a host shows. The sums of alice and of the
// host differ where devices are shared.
type whatCounts struct {
	name      string
	host      *host
	alice     usage.Amounts
	everybody *usage.Amounts // nil for the same
}

func TestWhatCountsForOne(t *testing.T) {
	for _, test := range []whatCounts{
		{"nothing attached", newHost(), usage.Amounts{}, nil},
		{"idle", newHost().attach(0, "1", "alice"), usage.Amounts{Attached: 100, Idle: 100}, nil},
		{"two devices", newHost().attach(0, "1", "alice").attach(1, "1", "alice"), usage.Amounts{Attached: 200, Idle: 200}, nil},
		{"used", newHost().attach(0, "1", "alice").run(0, "1", "alice"), usage.Amounts{Attached: 100, Used: 100, Computing: 100, Memory: gib}, nil},
		{"used by two processes", newHost().attach(0, "1", "alice").run(0, "1", "alice").run(0, "1", "alice"), usage.Amounts{Attached: 100, Used: 100, Computing: 100, Memory: 2 * gib}, nil},
		{"5 % is not computing", newHost().attach(0, "1", "alice").run(0, "1", "alice").with(utilization(new(5))), usage.Amounts{Attached: 100, Used: 100, Memory: gib}, nil},
		{"an unknown utilization", newHost().attach(0, "1", "alice").run(0, "1", "alice").with(utilization(nil)), usage.Amounts{Attached: 100, Used: 100, Unmeasured: 100, Memory: gib}, nil},
		{"unknown processes are not idle", newHost().attach(0, "1", "alice").with(func(s *snapshot.Snapshot) { s.Devices[0].ProcessesUnknown = true }), usage.Amounts{Attached: 100, Unmeasured: 100}, nil},
		{"which GPU is attached is unknown", newHost().attach(0, "1", "alice").with(func(s *snapshot.Snapshot) { s.Devices[0].Unidentified = true }), usage.Amounts{Attached: 100, Unmeasured: 100}, nil},
		{"unknown memory", newHost().attach(0, "1", "alice").run(0, "1", "alice").with(func(s *snapshot.Snapshot) { s.Processes[0].Usage[0].Memory = snapshot.Memory{} }), usage.Amounts{Attached: 100, Used: 100, Computing: 100}, nil},
		{"not attached", newHost().run(0, "", "alice"), usage.Amounts{Used: 100, Computing: 100, Memory: gib}, nil},
		{"on another device than the attached one", newHost().attach(0, "1", "alice").run(1, "1", "alice"), usage.Amounts{Attached: 100, Idle: 100, Used: 100, Computing: 100, Memory: gib}, nil},
		{"two environments of a user", newHost().attach(0, "1", "alice").attach(0, "2", "alice").run(0, "2", "alice"), usage.Amounts{Attached: 100, Used: 100, Computing: 100, Memory: gib}, nil},
		{"shared with bob, who uses it", newHost().attach(0, "1", "alice").attach(0, "2", "bob").run(0, "2", "bob"), usage.Amounts{Attached: 100, Idle: 100}, &usage.Amounts{Attached: 100, Used: 100, Computing: 100, Memory: gib}},
		{"two MIG instances", newHost().attach(0, "1", "alice").attach(0, "2", "bob").with(func(s *snapshot.Snapshot) {
			s.Devices[0].Utilization = nil
			s.Devices[0].Instances = []snapshot.Instance{{UUID: "MIG-1"}, {UUID: "MIG-2"}}
			s.Devices[0].Attachments[0].Instances, s.Devices[0].Attachments[1].Instances = []snapshot.GPUUUID{"MIG-1"}, []snapshot.GPUUUID{"MIG-2"}
		}).run(0, "1", "alice"), usage.Amounts{Attached: 100, Used: 100, Unmeasured: 100, Memory: gib}, nil},
	} {
		t.Run(test.name, test.run)
	}
}

func TestForWhomProcessesCount(t *testing.T) {
	for _, test := range []whatCounts{
		{"a process of root in the environment", newHost().attach(0, "1", "alice").run(0, "1", "root"), usage.Amounts{Attached: 100, Used: 100, Computing: 100, Memory: gib}, nil},
		{"bob's process that claims it", newHost().attach(0, "1", "alice").run(0, "1", "bob"), usage.Amounts{Attached: 100, Idle: 100}, &usage.Amounts{Attached: 100, Used: 100, Computing: 100, Memory: gib}},
		{"an environment that bob registered", newHost().attach(0, "1", "alice").with(func(s *snapshot.Snapshot) { s.Environments[0].OwnerMismatch = true }), usage.Amounts{}, &usage.Amounts{Attached: 100, Idle: 100}},
		{"an environment that isn't registered", newHost().attach(0, "1", "alice").with(func(s *snapshot.Snapshot) { s.Environments = nil }), usage.Amounts{}, &usage.Amounts{Attached: 100, Idle: 100}},
		{"a host that reports no uids", newHost().attach(0, "1", "alice").run(0, "1", "alice").with(func(s *snapshot.Snapshot) { s.Processes[0].UID, s.Processes[0].Username = nil, "" }), usage.Amounts{Attached: 100, Used: 100, Computing: 100, Memory: gib}, nil},
		{"an environ that can't be read", newHost().attach(0, "1", "alice").run(0, "", "alice").with(func(s *snapshot.Snapshot) { s.Processes[0].EnvUnknown, s.Processes[0].Inherited = true, "1" }), usage.Amounts{Attached: 100, Used: 100, Computing: 100, Memory: gib}, nil},
	} {
		t.Run(test.name, test.run)
	}
}

func (test *whatCounts) run(t *testing.T) {
	account := usage.NewMeter(time.UTC)
	account.Look(begin, clusterOf(on(test.host)))
	account.Settle(begin.Add(100 * time.Second))
	sums, everybody := account.Take(), *cmp.Or(test.everybody, &test.alice)
	require.Equal(t, test.alice, sum(sums, usage.OfUser, "alice").Amounts)
	for kind, name := range map[usage.SumKind]string{usage.OfHost: "a", usage.OfModel: "H100", usage.OfAll: ""} {
		require.Equal(t, everybody, sum(sums, kind, name).Amounts)
	}
	require.Equal(t, everybody.Attached/100, sum(sums, usage.OfAll, "").Peak)
}

func utilization(u *int) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) { s.Devices[0].Utilization = u }
}

// sum is a sum over all hours.
func sum(sums usage.Sums, kind usage.SumKind, name string) (total usage.Sum) {
	for key := range sums {
		if s := sums[key]; key.Kind == kind && key.Name == name {
			total.Add(&s)
		}
	}
	return total
}

// look is what is seen some seconds after the begin.
type look struct {
	after float64
	hosts map[snapshot.Hostname]*host
}

// What the time between looks counts for.
func TestWhenItCounts(t *testing.T) {
	idle := func() *host { return newHost().attach(0, "1", "alice") }
	same := on(idle())
	for _, test := range []struct {
		name  string
		looks []look
		alice usage.Amounts
	}{
		{"one look", []look{{0, on(idle())}}, usage.Amounts{}},
		{"for what the earlier look showed", []look{{0, on(idle())}, {10, on(newHost())}, {30, on(idle())}, {35, on(idle())}}, usage.Amounts{Attached: 15, Idle: 15}},
		{"several looks in a second", []look{{0.1, on(newHost())}, {0.4, on(idle())}, {0.9, on(idle())}, {1.2, on(idle())}, {3.9, on(newHost())}, {5, on(newHost())}}, usage.Amounts{Attached: 3, Idle: 3}},
		{"a host that doesn't answer", []look{{0, on(idle())}, {10, on(nil)}, {25, on(nil)}, {40, on(newHost())}, {50, on(newHost())}}, usage.Amounts{Attached: 10, Idle: 10, Unknown: 30}},
		{"a host that never answered", []look{{0, on(nil)}, {10, on(nil)}, {25, on(idle())}, {26, on(idle())}}, usage.Amounts{Attached: 1, Idle: 1}},
		{"used before it was lost", []look{{0, on(newHost().run(0, "", "alice"))}, {0, on(nil)}, {25, on(newHost())}}, usage.Amounts{}},
		{"a host that is removed", []look{{0, on(idle())}, {10, nil}, {60, nil}, {70, on(idle())}, {71, on(idle())}}, usage.Amounts{Attached: 11, Idle: 11}},
		{"a host that is removed while lost", []look{{0, on(idle())}, {10, on(nil)}, {20, nil}, {30, nil}}, usage.Amounts{Attached: 10, Idle: 10, Unknown: 10}},
		{"no look for too long", []look{{0, on(idle())}, {60, on(idle())}, {200, on(idle())}, {210, on(idle())}}, usage.Amounts{Attached: 70, Idle: 70, Unknown: 140}},
		{"no look for too long, and then it has changed", []look{{0, on(idle())}, {200, on(newHost())}, {210, on(newHost())}}, usage.Amounts{Unknown: 200}},
		{"no look for too long, and then it is removed", []look{{0, on(idle())}, {200, nil}, {210, nil}}, usage.Amounts{Unknown: 200}},
		{"nothing changes", []look{{0, same}, {10, same}, {30, same}, {4000, same}, {4010, same}}, usage.Amounts{Attached: 40, Idle: 40, Unknown: 3970}},
		{"nothing changes, but it doesn't answer for a while", []look{{0, same}, {10, same}, {20, on(nil)}, {50, on(nil)}, {55, same}, {65, same}}, usage.Amounts{Attached: 30, Idle: 30, Unknown: 35}},
		{"the clock is set back, without a monotonic one", []look{{100, on(idle())}, {90, on(idle())}, {95, on(idle())}}, usage.Amounts{Attached: 5, Idle: 5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			account := usage.NewMeter(time.UTC)
			account.MaxGap = time.Minute
			for _, l := range test.looks {
				account.Look(begin.Add(time.Duration(l.after*1000)*time.Millisecond), clusterOf(l.hosts))
			}
			sums := account.Take()
			require.Equal(t, test.alice, sum(sums, usage.OfUser, "alice").Amounts)
		})
	}
}

// A GPU that doesn't say its model has the one that it said last, whichever index it has.
func TestModels(t *testing.T) {
	named := func(uuid snapshot.GPUUUID, name string) *host {
		return newHost().attach(0, "1", "alice").with(func(s *snapshot.Snapshot) { s.Devices[0].UUID, s.Devices[0].Name = uuid, name })
	}
	account := usage.NewMeter(time.UTC)
	for i, h := range []*host{named("GPU-a", "A100"), named("GPU-a", ""), named("", ""), named("GPU-b", ""), named("GPU-b", "L4"), newHost()} {
		account.Look(begin.Add(time.Duration(i)*time.Second), clusterOf(on(h)))
	}
	sums := account.Take()
	for model, seconds := range map[string]int64{"A100": 3, "": 1, "L4": 1, "H100": 0} {
		require.Equal(t, seconds, sum(sums, usage.OfModel, model).Attached, model)
	}
}

// Time counts in its hours, of 60 minutes by a wall clock that may be half an hour off.
func TestHours(t *testing.T) {
	for _, test := range []struct {
		zone  string
		hours []int64
	}{
		{"UTC", []int64{1800, 3600, 600}},
		{"Asia/Kolkata", []int64{3600, 2400}},
	} {
		in, err := time.LoadLocation(test.zone)
		require.NoError(t, err)
		account := usage.NewMeter(in)
		from := begin.Add(30 * time.Minute)
		account.Look(from, clusterOf(on(newHost().attach(0, "1", "alice"))))
		account.Settle(from.Add(100 * time.Minute))
		sums := account.Take()
		var hours []int64
		for hour := usage.HourOf(from.Unix(), in); len(hours) < len(test.hours); hour += 3600 {
			hours = append(hours, sums[usage.SumKey{Hour: hour, Kind: usage.OfUser, Name: "alice"}].Attached)
		}
		require.Equal(t, test.hours, hours, test.zone)
		require.Empty(t, account.Take(), "each second once")
	}
}

func TestDays(t *testing.T) {
	for _, test := range []struct {
		zone, day string
		hours     float64
	}{
		{"UTC", "2026-11-20", 24},
		{"Europe/Berlin", "2026-03-29", 23},
		{"Europe/Berlin", "2026-10-25", 25},
		{"Asia/Beirut", "2026-03-29", 23}, // it begins at 1 o'clock
		{"Australia/Lord_Howe", "2026-04-05", 24.5},
	} {
		in, err := time.LoadLocation(test.zone)
		require.NoError(t, err)
		day, err := time.ParseInLocation(time.DateOnly, test.day, in)
		require.NoError(t, err)
		noon := day.Add(12 * time.Hour).Unix()
		start, end := usage.DayOf(noon, in), usage.NextDay(noon, in)
		require.InDelta(t, test.hours, float64(end-start)/3600, 0, test.zone)
		require.Equal(t, start, usage.DayOf(start, in))
		require.Equal(t, start, usage.DayOf(end-1, in))
		require.Equal(t, end, usage.DayOf(end, in))
		require.Equal(t, start, usage.HourOf(start, in), "a day begins with an hour")
	}
}

func TestActions(t *testing.T) {
	uid := snapshot.UID(1004)
	report := &order.Order{
		Terminate: []order.Termination{
			{Process: snapshot.Process{PID: 1, Username: "alice", Usage: []snapshot.DeviceUsage{{Index: 1}}}},
			{Process: snapshot.Process{PID: 2}, Reasons: order.Reasons{Because: []string{"f"}}},
			{Process: snapshot.Process{PID: 3, Username: "alice"}},
		},
		Detach: []order.Detachment{{Device: 1, Environment: snapshot.Environment{EID: "9", UID: uid}}},
	}
	account := usage.NewMeter(time.UTC)
	account.Look(begin, clusterOf(on(newHost())))
	account.Count(begin, []enforce.Event{
		{Kind: enforce.EventNew, Finding: &enforce.Finding{Host: "a", User: "alice", Devices: []snapshot.DeviceIndex{1}}},
		{Kind: enforce.EventNew, Finding: &enforce.Finding{User: "alice"}}, // on several hosts
		{Kind: enforce.EventNew, Resumed: true, Finding: &enforce.Finding{Host: "a", User: "alice"}},
		{Kind: enforce.EventChanged, Finding: &enforce.Finding{Host: "a", User: "alice"}},
		{Kind: enforce.EventActing, Host: "a", Order: report},
		{
			Kind: enforce.EventOutcome, Host: "a", Order: report, Findings: []enforce.Finding{{ID: "f", User: "bob"}},
			Outcomes: []order.Outcome{
				{PID: 1, Status: order.StatusKilled},
				{PID: 2, Status: order.StatusSignalled},
				{PID: 3, Status: order.StatusSurvived},
				{Device: 1, EID: "9", Status: order.StatusDetached},
				{Device: 0, EID: "9", Status: order.StatusNotAttached},
				{PID: 4, Status: order.StatusTerminated}, // made up by the host
			},
		},
	})
	sums := account.Take()
	for _, test := range []struct {
		kind usage.SumKind
		name string
		want usage.Amounts
	}{
		{usage.OfUser, "alice", usage.Amounts{Findings: 2, Terminated: 1}},
		{usage.OfUser, "bob", usage.Amounts{Terminated: 1}},
		{usage.OfUser, "uid 1004", usage.Amounts{Detached: 1}},
		{usage.OfHost, "a", usage.Amounts{Findings: 1, Terminated: 2, Detached: 1}},
		{usage.OfModel, "H100", usage.Amounts{Findings: 1, Terminated: 1, Detached: 1}},
		{usage.OfAll, "", usage.Amounts{Findings: 2, Terminated: 2, Detached: 1}},
	} {
		require.Equal(t, test.want, sum(sums, test.kind, test.name).Amounts, test.name)
	}
}

// Findings by host and by model add up to those of all, also findings of no host or device.
func TestFindingsAddUp(t *testing.T) {
	a := usage.NewMeter(time.UTC)
	a.Count(begin, []enforce.Event{
		{Kind: enforce.EventNew, Finding: &enforce.Finding{Host: "a", User: "alice", Devices: []snapshot.DeviceIndex{1}}},
		{Kind: enforce.EventNew, Finding: &enforce.Finding{Host: "a", User: "alice"}},
		{Kind: enforce.EventNew, Finding: &enforce.Finding{User: "alice"}},
	})
	found := make(map[usage.SumKind]int64)
	sums := a.Take()
	for key := range sums {
		sum := sums[key]
		found[key.Kind] += sum.Findings
	}
	require.Equal(t, map[usage.SumKind]int64{usage.OfUser: 3, usage.OfHost: 3, usage.OfModel: 3, usage.OfAll: 3}, found)
}
