package usage_test

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
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

// parse makes a host of texts such as "attach 0 1 alice, run 0 1 alice": what, the device, the environment and the user.
func parse(t *testing.T, text string) *host {
	h := newHost()
	for each := range strings.SplitSeq(text, ", ") {
		words := strings.Fields(each)
		if len(words) == 0 {
			continue
		}
		add := map[string]func(int, snapshot.EnvID, snapshot.Username) *host{"attach": h.attach, "run": h.run}[words[0]]
		device := proctest.Try(strconv.Atoi(words[1])).OK(t)
		add(device, snapshot.EnvID(strings.Trim(words[2], "-")), snapshot.Username(words[3]))
	}
	return h
}

// shown are the amounts that aren't zero, as in "Attached:100 Idle:100".
func shown(a usage.Amounts) string {
	return strings.TrimSpace(regexp.MustCompile(`\w+:0\b ?|[{}]`).ReplaceAllString(fmt.Sprintf("%+v", a), ""))
}

// whatCounts is what 100 seconds amount to, for what a host shows. The sums of alice and of the
// host differ where devices are shared.
type whatCounts struct {
	host      string
	change    func(*snapshot.Snapshot) // nil for none
	alice     string
	everybody string // empty for the same
}

const (
	attached = "attach 0 1 alice"
	idle     = "Attached:100 Idle:100"
	used     = "Attached:100 Used:100 Computing:100 Memory:102400"
)

func TestWhatCountsForOne(t *testing.T) {
	for name, test := range map[string]whatCounts{
		"nothing attached":               {"", nil, "", ""},
		"idle":                           {attached, nil, idle, ""},
		"two devices":                    {attached + ", attach 1 1 alice", nil, "Attached:200 Idle:200", ""},
		"used":                           {attached + ", run 0 1 alice", nil, used, ""},
		"used by two processes":          {attached + ", run 0 1 alice, run 0 1 alice", nil, strings.Replace(used, "102400", "204800", 1), ""},
		"5 % is not computing":           {attached + ", run 0 1 alice", utilization(new(5)), "Attached:100 Used:100 Memory:102400", ""},
		"an unknown utilization":         {attached + ", run 0 1 alice", utilization(nil), "Attached:100 Used:100 Unmeasured:100 Memory:102400", ""},
		"unknown processes are not idle": {attached, func(s *snapshot.Snapshot) { s.Devices[0].ProcessesUnknown = true }, "Attached:100 Unmeasured:100", ""},
		"which GPU is attached is unknown": {
			attached, func(s *snapshot.Snapshot) { s.Devices[0].Unidentified = true }, "Attached:100 Unmeasured:100", "",
		},
		"unknown memory": {
			attached + ", run 0 1 alice", func(s *snapshot.Snapshot) { s.Processes[0].Usage[0].Memory = snapshot.Memory{} },
			"Attached:100 Used:100 Computing:100", "",
		},
		"not attached": {"run 0 - alice", nil, "Used:100 Computing:100 Memory:102400", ""},
		"on another device than the attached one": {attached + ", run 1 1 alice", nil, "Attached:100 Used:100 Computing:100 Idle:100 Memory:102400", ""},
		"two environments of a user":              {attached + ", attach 0 2 alice, run 0 2 alice", nil, used, ""},
		"shared with bob, who uses it":            {attached + ", attach 0 2 bob, run 0 2 bob", nil, idle, used},
		"two MIG instances": {attached + ", attach 0 2 bob, run 0 1 alice", func(s *snapshot.Snapshot) {
			d := &s.Devices[0]
			d.Utilization, d.Instances = nil, []snapshot.Instance{{UUID: "MIG-1"}, {UUID: "MIG-2"}}
			d.Attachments[0].Instances, d.Attachments[1].Instances = []snapshot.GPUUUID{"MIG-1"}, []snapshot.GPUUUID{"MIG-2"}
		}, "Attached:100 Used:100 Unmeasured:100 Memory:102400", ""},
	} {
		t.Run(name, test.run)
	}
}

func TestForWhomProcessesCount(t *testing.T) {
	for name, test := range map[string]whatCounts{
		"a process of root in the environment": {attached + ", run 0 1 root", nil, used, ""},
		"bob's process that claims it":         {attached + ", run 0 1 bob", nil, idle, used},
		"an environment that bob registered":   {attached, func(s *snapshot.Snapshot) { s.Environments[0].OwnerMismatch = true }, "", idle},
		"an environment that isn't registered": {attached, func(s *snapshot.Snapshot) { s.Environments = nil }, "", idle},
		"a host that reports no uids": {
			attached + ", run 0 1 alice", func(s *snapshot.Snapshot) { s.Processes[0].UID, s.Processes[0].Username = nil, "" }, used, "",
		},
		"an environ that can't be read": {
			attached + ", run 0 - alice", func(s *snapshot.Snapshot) { s.Processes[0].EnvUnknown, s.Processes[0].Inherited = true, "1" }, used, "",
		},
	} {
		t.Run(name, test.run)
	}
}

func (test *whatCounts) run(t *testing.T) {
	h := parse(t, test.host)
	if test.change != nil {
		test.change(&h.Snapshot)
	}
	account := usage.NewMeter(time.UTC)
	account.Look(begin, clusterOf(on(h)))
	account.Settle(begin.Add(100 * time.Second))
	sums, everybody := account.Take(), cmp.Or(test.everybody, test.alice)
	require.Equal(t, test.alice, shown(sum(sums, usage.OfUser, "alice").Amounts))
	for kind, name := range map[usage.SumKind]string{usage.OfHost: "a", usage.OfModel: "H100", usage.OfAll: ""} {
		require.Equal(t, everybody, shown(sum(sums, kind, name).Amounts))
	}
	all := sum(sums, usage.OfAll, "")
	require.Equal(t, all.Attached/100, all.Peak)
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

// What the time between looks counts for. Each look is some seconds after the begin.
func TestWhenItCounts(t *testing.T) {
	same := parse(t, attached)
	for name, test := range map[string]struct{ looks, alice string }{
		"one look":                                       {"0 idle", ""},
		"for what the earlier look showed":               {"0 idle, 10 free, 30 idle, 35 idle", "Attached:15 Idle:15"},
		"several looks in a second":                      {"0.1 free, 0.4 idle, 0.9 idle, 1.2 idle, 3.9 free, 5 free", "Attached:3 Idle:3"},
		"a host that doesn't answer":                     {"0 idle, 10 lost, 25 lost, 40 free, 50 free", "Attached:10 Idle:10 Unknown:30"},
		"a host that never answered":                     {"0 lost, 10 lost, 25 idle, 26 idle", "Attached:1 Idle:1"},
		"used before it was lost":                        {"0 used, 0 lost, 25 free", ""},
		"a host that is removed":                         {"0 idle, 10 gone, 60 gone, 70 idle, 71 idle", "Attached:11 Idle:11"},
		"a host that is removed while lost":              {"0 idle, 10 lost, 20 gone, 30 gone", "Attached:10 Idle:10 Unknown:10"},
		"no look for too long":                           {"0 idle, 60 idle, 200 idle, 210 idle", "Attached:70 Idle:70 Unknown:140"},
		"no look, and then it has changed":               {"0 idle, 200 free, 210 free", "Unknown:200"},
		"no look, and then it is removed":                {"0 idle, 200 gone, 210 gone", "Unknown:200"},
		"nothing changes":                                {"0 same, 10 same, 30 same, 4000 same, 4010 same", "Attached:40 Idle:40 Unknown:3970"},
		"nothing changes, but it is lost once":           {"0 same, 10 same, 20 lost, 50 lost, 55 same, 65 same", "Attached:30 Idle:30 Unknown:35"},
		"the clock is set back, without a monotonic one": {"100 idle, 90 idle, 95 idle", "Attached:5 Idle:5"},
	} {
		t.Run(name, func(t *testing.T) {
			account := usage.NewMeter(time.UTC)
			account.MaxGap = time.Minute
			for look := range strings.SplitSeq(test.looks, ", ") {
				after, state, _ := strings.Cut(look, " ")
				at := proctest.Try(time.ParseDuration(after + "s")).OK(t)
				account.Look(begin.Add(at), clusterOf(map[string]map[snapshot.Hostname]*host{
					"idle": on(parse(t, attached)), "free": on(newHost()), "used": on(parse(t, "run 0 - alice")), "same": on(same),
					"lost": on(nil), "gone": nil,
				}[state]))
			}
			require.Equal(t, test.alice, shown(sum(account.Take(), usage.OfUser, "alice").Amounts))
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
		in := proctest.Try(time.LoadLocation(test.zone)).OK(t)
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
		in := proctest.Try(time.LoadLocation(test.zone)).OK(t)
		day := proctest.Try(time.ParseInLocation(time.DateOnly, test.day, in)).OK(t)
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
