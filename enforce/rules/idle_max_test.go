package rules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// stated is a policy that says the same to everybody, everywhere, always, unless asked says otherwise.
type stated struct {
	all    enforce.Settings
	asked  func(enforce.Query, *enforce.Settings)
	exempt func(enforce.Subject) bool
	fleet  enforce.Fleet

	indices []enforce.ExemptGPU
	list    capList
	named   snapshot.Username
	booking map[snapshot.Username]*snapshot.ReservationRule
}

func (s stated) Settings(q enforce.Query) *enforce.Settings {
	settings := s.all
	if s.asked != nil {
		s.asked(q, &settings)
	}
	return &settings
}

func (s stated) Exempt(subject enforce.Subject) (string, bool) {
	return "stated", s.exempt != nil && s.exempt(subject)
}

func (s stated) ReservationRule(user snapshot.Username) (*snapshot.ReservationRule, bool) {
	return s.booking[user], true
}
func (s stated) Names(user snapshot.Username) bool                   { return user == s.named }
func (s stated) Caps(time.Time) capList                              { return s.list }
func (s stated) ExemptIndices(snapshot.Hostname) []enforce.ExemptGPU { return s.indices }

func (stated) Account(user snapshot.Username) snapshot.Username { return user }
func (s stated) Fleet() enforce.Fleet                           { return s.fleet }

// ofUser changes what a policy says to one user.
func ofUser(user snapshot.Username, change func(*enforce.Settings)) func(enforce.Query, *enforce.Settings) {
	return func(q enforce.Query, s *enforce.Settings) {
		if q.User == user {
			change(s)
		}
	}
}

// capsOf gives single users a cap of their own on devices.
func capsOf(caps map[snapshot.Username]int) func(enforce.Query, *enforce.Settings) {
	return func(q enforce.Query, s *enforce.Settings) {
		if n, ok := caps[q.User]; ok {
			s.MaxDevices = &n
		}
	}
}

func memory(bytes int64) snapshot.Memory { return snapshot.MustMemory(fmt.Sprint(bytes)) }

// noon is when the tables begin: attachments are made at 10:MM of this day.
func noon(minutes int) time.Time {
	return time.Date(2026, 11, 20, 12, minutes, 0, 0, time.Local)
}

// cycle is a minute after noon, what the hosts say then, and what follows.
type cycle struct {
	minute  int
	cluster string
	want    string
}

// story is a policy and what it does in several cycles.
type story struct {
	name   string
	policy stated
	cycles []cycle
}

func runStories(t *testing.T, stories []story) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			var memory controllerMemory
			for i, c := range s.cycles {
				require.Equal(t, c.want, planText(memory.Judge(s.policy, parseCluster(t, c.cluster), noon(c.minute))), "cycle %d", i+1)
			}
		})
	}
}

const (
	idleDevice = `a | env 1 alice | dev 0 1@01`
	busyDevice = `a | env 1 alice | dev 0 1@01 | proc 5 1 0:10`
)

func TestIdle(t *testing.T) {
	hour := stated{all: enforce.Settings{Idle: &enforce.Idle{After: time.Hour}}}
	five := stated{all: enforce.Settings{Idle: &enforce.Idle{After: time.Hour, Below: 5}}}
	both := stated{all: enforce.Settings{EnvDevices: true, Idle: &enforce.Idle{After: time.Hour, Below: 5}}}
	every := func(text string, want ...string) []cycle {
		var list []cycle
		for i, w := range want {
			list = append(list, cycle{minute: i * 15, cluster: text, want: w})
		}
		return list
	}
	runStories(t, []story{
		{"after an hour without a process", hour, every(idleDevice, "", "", "", "", "a detach 0 1")},
		{"another's process does not use it", hour, every(`a | env 1 alice | env 2 bob | dev 0 1@01 2@02 | proc 5 2 0:10`, "", "", "", "", "a detach 0 1")},
		{"computing next to nothing", five, every(`a | env 1 alice | dev 0 u4 1@01 | proc 5 1 0:10`, "", "", "", "", "a detach 0 1")},
		{"without a process, whatever is computed", five, every(`a | env 1 alice | dev 0 u90 1@01`, "", "", "", "", "a detach 0 1")},
		{"its processes are not ended for it, while no other environment gets the device", both, append(
			every(`a | env 1 alice | dev 0 u4 1@01 | proc 5 1 0:10`, "", "", "", "", "a detach 0 1"),
			cycle{75, `a | env 1 alice | env 2 bob | dev 0 u4 | proc 5 1 0:10`, ""},
			cycle{76, `a | env 1 alice | env 2 bob | dev 0 u4 | proc 5 1 0:10 | proc 6 1 0:10`, ""},
			cycle{77, `a | env 1 alice | env 2 bob | dev 0 u4 2@09 | proc 5 1 0:10`, "a end 5"})},
		{"nor when the GPU gets another index, while it is known or may be it", both, append(
			every(`a | env 1 alice | dev 0 GPU-a u90 | dev 1 GPU-b u4 1@01 | proc 5 1 1:10`, "", "", "", "", "a detach 1 1"),
			cycle{75, `a | env 1 alice | dev 0 GPU-b u4 | proc 5 1 0:10`, ""},
			cycle{76, `a | env 1 alice | dev 0 u90 | proc 5 1 0:10`, ""},
			cycle{77, `a | env 1 alice | dev 0 GPU-b u4 | dev 1 GPU-c u4 | proc 5 1 0:10 | proc 6 1 1:10`, "a end 6"})},
		{"nor does the GPU with its index count as idle since then", hour, append(
			every(`a | env 1 alice | dev 0 GPU-a 1@01`, "", "", "", ""),
			cycle{60, `a | env 1 alice | dev 0 GPU-b 1@01 | dev 1 GPU-a 1@01`, "a detach 1 1"})},
		{"a controller that was started since", both, []cycle{{0, `a | env 1 alice | dev 0 u4 | proc 5 1 0:10`, "a end 5"}}},
		{"who comes back to it later has no leave", both, append(
			every(`a | env 1 alice | dev 0 u4 1@01 | proc 5 1 0:10`, "", "", "", "", "a detach 0 1"),
			cycle{75, `a | env 1 alice | dev 0`, ""},
			cycle{76, `a | env 1 alice | dev 0 | proc 6 1 0:10`, "a end 6"})},

		{"not before the hour is over", hour, every(idleDevice, "", "", "", "")},
		{"a process all the time", hour, every(busyDevice, "", "", "", "", "", "")},
		{"a process once in between", hour, append(every(idleDevice, "", "", ""), cycle{40, busyDevice, ""}, cycle{50, idleDevice, ""}, cycle{60, idleDevice, ""}, cycle{70, idleDevice, ""})},
		{"a process of an unknown environment", hour, every(`a | env 1 alice | dev 0 1@01 | proc 5 ? 0:10`, "", "", "", "", "", "")},
		{"processes alone, without a limit of utilization", hour, every(`a | env 1 alice | dev 0 u0 1@01 | proc 5 1 0:10`, "", "", "", "", "", "")},
		{"computing enough", five, every(`a | env 1 alice | dev 0 u5 1@01 | proc 5 1 0:10`, "", "", "", "", "", "")},
		{"processes that the driver doesn't report", hour, every(`a | env 1 alice | dev 0 p? 1@01`, "", "", "", "", "", "")},
		{"the same, computing next to nothing", five, every(`a | env 1 alice | dev 0 u4 p? 1@01`, "", "", "", "", "a detach 0 1")},
		{"the same, an unknown utilization", five, every(`a | env 1 alice | dev 0 p? 1@01`, "", "", "", "", "", "")},
		{"an unknown utilization", five, every(busyDevice, "", "", "", "", "", "")},
		{"enough once in between", five, []cycle{
			{0, `a | env 1 alice | dev 0 u4 1@01 | proc 5 1 0:10`, ""},
			{15, `a | env 1 alice | dev 0 u4 1@01 | proc 5 1 0:10`, ""},
			{30, `a | env 1 alice | dev 0 u50 1@01 | proc 5 1 0:10`, ""},
			{45, `a | env 1 alice | dev 0 u4 1@01 | proc 5 1 0:10`, ""},
			{60, `a | env 1 alice | dev 0 u4 1@01 | proc 5 1 0:10`, ""},
			{75, `a | env 1 alice | dev 0 u4 1@01 | proc 5 1 0:10`, ""},
		}},
		{"attached again, without a break", hour, append(every(idleDevice, "", "", ""), cycle{45, `a | env 1 alice | dev 0 1@50`, ""}, cycle{60, `a | env 1 alice | dev 0 1@50`, "a detach 0 1"})},
		{"in another environment, without a break", hour, append(every(idleDevice, "", "", ""), cycle{45, `a | env 2 alice | dev 0 2@50`, ""}, cycle{60, `a | env 2 alice | dev 0 2@50`, "a detach 0 2"})},
		{"used in another environment of the same person", hour, every(`a | env 1 alice u1 | env 2 alice u1 | dev 0 1@01 2@02 | proc 5 2 u1 0:10`, "", "", "", "", "", "")},
		{"detached in between", hour, append(every(idleDevice, "", "", ""), cycle{45, `a | env 1 alice | dev 0`, ""}, cycle{60, `a | env 1 alice | dev 0 1@50`, ""})},
		{"a host that did not answer in between", hour, append(every(idleDevice, "", "", ""), cycle{45, `a | down`, ""}, cycle{60, idleDevice, ""}, cycle{75, idleDevice, ""})},
		{"no cycle ran in between", hour, []cycle{{0, idleDevice, ""}, {600, idleDevice, ""}, {610, idleDevice, ""}}},
		{"the rule is off", stated{}, every(idleDevice, "", "", "", "", "")},
		{"exempt", stated{all: hour.all, exempt: func(s enforce.Subject) bool { return s.Environment != nil }}, every(idleDevice, "", "", "", "", "")},
	})
}

func TestMaxDuration(t *testing.T) {
	two := enforce.Settings{MaxDuration: 2 * time.Hour}
	runStories(t, []story{
		{"longer than allowed", stated{all: two}, []cycle{{2, idleDevice, "a detach 0 1"}}},
		{"busy or not, and no process ends for it", stated{all: two}, []cycle{{2, busyDevice, "a detach 0 1"}}},
		{"each attachment for itself", stated{all: two}, []cycle{{5, `a | env 1 alice | dev 0 1@01 | dev 1 1@09`, "a detach 0 1"}}},
		{"each user for himself", stated{asked: ofUser("bob", func(s *enforce.Settings) { s.MaxDuration = time.Hour })}, []cycle{{0, `a | env 1 alice | env 2 bob | dev 0 1@01 2@01`, "a detach 0 2"}}},

		{"as long as allowed", stated{all: two}, []cycle{{1, idleDevice, ""}}},
		{"an attachment of the future", stated{all: two}, []cycle{{-600, idleDevice, ""}}},
		{"no limit", stated{}, []cycle{{600, idleDevice, ""}}},
		{"exempt", stated{all: two, exempt: func(s enforce.Subject) bool { return s.Device != nil }}, []cycle{{2, idleDevice, ""}}},
		{"a host that is down", stated{all: two}, []cycle{{2, `a | down`, ""}}},
	})
}

// Ages are by the host's own clock: neither its zone, nor what a user wrote, changes one.
func TestMaxDurationByTheLooksOfRoot(t *testing.T) {
	policy := stated{all: enforce.Settings{MaxDuration: time.Hour}}
	date := func(text string) snapshot.Date {
		d, err := snapshot.ParseDate("20/11/2026 " + text)
		require.NoError(t, err)
		return d
	}
	at := time.Date(2026, 11, 20, 10, 30, 0, 0, time.UTC)
	for since, want := range map[string]string{"09:31:00": "", "09:29:00": "a detach 0 1"} {
		for _, written := range []string{"00:00:00", "09:00:00", "23:00:00"} {
			for _, offset := range []int{-8 * 3600, 0, 9 * 3600} {
				cluster := parseCluster(t, idleDevice)
				s := cluster.Hosts[0].Snapshot
				s.UTCOffset = &offset
				a := &s.Devices[0].Attachments[0]
				a.Since, a.Time = sinceBoot(date(since)), date(written)
				require.Equal(t, want, planText(evaluate(policy, cluster, at)), "since %s, written %s", since, written)
			}
		}
	}
}

// What is attached to a GPU is unknown, as when GPUs were renumbered.
func TestUnidentifiedDevices(t *testing.T) {
	runStories(t, []story{
		{"a process there", stated{all: enforce.Settings{EnvDevices: true, NonEnvProcesses: true}}, []cycle{
			{0, "a | env 1 alice u1001 | dev 0 who? | proc 5 1 u1001 0:10", ""},
			{1, "a | env 1 alice u1001 | dev 0 who? | proc 5 - u1001 0:10", ""},
		}},
		{"and its attachments", stated{all: enforce.Settings{MaxDuration: time.Minute, MaxDevices: new(0)}}, []cycle{{0, "a | env 1 alice | dev 0 who? 1@01", ""}}},
	})
}

// Where root keeps no note, the memory takes its place: written times count only between two looks.
func TestMaxDurationByTheMemory(t *testing.T) {
	hour := stated{all: enforce.Settings{MaxDuration: time.Hour}}
	const before, attached, again = "a | env 1 alice | dev 0", "a | env 1 alice | dev 0 1~00", "a | env 1 alice | dev 0 1~12:50"
	runStories(t, []story{
		{"the first look begins it", hour, []cycle{{0, attached, ""}, {60, attached, ""}, {61, attached, "a detach 0 1"}}},
		{"no older than the last look without it", hour, []cycle{{5, before, ""}, {6, attached, ""}, {65, attached, ""}, {66, attached, "a detach 0 1"}}},
		{"no younger than the first with it", hour, []cycle{{5, before, ""}, {6, again, ""}, {66, again, ""}, {67, again, "a detach 0 1"}}},
		{"attached again", hour, []cycle{{0, attached, ""}, {51, again, ""}, {110, again, ""}, {111, again, "a detach 0 1"}}},
		{"a host that was down keeps it", hour, []cycle{{0, attached, ""}, {30, "a | down", ""}, {61, attached, "a detach 0 1"}}},
		{"made while the host was down", hour, []cycle{{5, before, ""}, {30, "a | down", ""}, {40, attached, ""}, {65, attached, ""}, {66, attached, "a detach 0 1"}}},
		{"a host that was forgotten", hour, []cycle{{0, attached, ""}, {30, "b", ""}, {61, attached, ""}, {121, attached, ""}, {122, attached, "a detach 0 1"}}},
	})
}

func TestMaxMemory(t *testing.T) {
	limit := func(text string) stated {
		return stated{all: enforce.Settings{MaxMemory: new(snapshot.MustMemory(text))}}
	}
	runStories(t, []story{
		{"whole devices count whole", limit("100g"), []cycle{{0, `a | env 1 alice | dev 0 1@01 | dev 1 1@02`, "a detach 1 1"}}},
		{"on all hosts together", limit("100g"), []cycle{{0, "a | env 1 alice | dev 0 1@01\nb | env 2 alice | dev 0 2@02", "b detach 0 2"}}},
		{"shared devices count their capacity", limit("9g"), []cycle{{0, `a | env 1 alice 5g | dev 0 1@01 | dev 1 1@02`, "a detach 1 1"}}},
		{"idle before busy", limit("100g"), []cycle{{0, `a | env 1 alice | dev 0 1@01 | dev 1 1@02 | proc 5 1 1:10`, "a detach 0 1"}}},
		{"busy when there is nothing else", limit("50g"), []cycle{{0, busyDevice, "a detach 0 1; a end 5"}}},
		{"what was not needed is given back", limit("91g"), []cycle{{0, `a | env 1 alice 5g | env 2 alice | dev 0 1@09 | dev 1 2@02 | dev 2 2@01`, "a detach 1 2"}}},
		{"no more of one device than it has", limit("90g"), []cycle{{0, `a | env 1 alice | env 2 alice | dev 0 1@01 2@02`, ""}}},

		{"at the cap", limit("10g"), []cycle{{0, `a | env 1 alice 5g | dev 0 1@01 | dev 1 1@02`, ""}}},
		{"two users are counted apart", limit("90g"), []cycle{{0, `a | env 1 alice | env 2 bob | dev 0 1@01 | dev 1 2@02`, ""}}},
		{"no cap", stated{}, []cycle{{0, `a | env 1 alice | dev 0 1@01 | dev 1 1@02`, ""}}},
		{"unknown memory is not counted", limit("90g"), []cycle{{0, `a | env 1 alice | dev 0 1@01 | dev 1 m? 1@02`, ""}}},
		{"nor taken", limit("50g"), []cycle{{0, `a | env 1 alice | dev 0 1@01 | dev 1 m? 1@02`, "a detach 0 1"}}},
		{"a host that is down", limit("90g"), []cycle{{0, "a | env 1 alice | dev 0 1@01\nb | down", ""}}},
		{"a user without a name", limit("1g"), []cycle{{0, `a | env 1 - | dev 0 1@01`, ""}}},
	})
}

func TestMaxEnvs(t *testing.T) {
	one := stated{all: enforce.Settings{MaxEnvs: new(1)}}
	runStories(t, []story{
		{"the newest loses its devices", one, []cycle{{0, `a | env 1 alice | env 2 alice | dev 0 1@01 | dev 1 2@02`, "a detach 0 1"}}}, // equally new: by id
		{"without processes first", one, []cycle{{0, `a | env 1 alice | env 2 alice | dev 0 1@01 | dev 1 2@02 | proc 5 1 0:10`, "a detach 1 2"}}},
		{"busy ones when there are no others", stated{all: enforce.Settings{MaxEnvs: new(0)}}, []cycle{{0, busyDevice, "a detach 0 1; a end 5"}}},
		{"on all hosts together", one, []cycle{{0, "a | env 1 alice | dev 0 1@01 | proc 5 1 0:9\nb | env 2 alice | dev 0 2@02", "b detach 0 2"}}},

		{"at the cap", one, []cycle{{0, idleDevice, ""}}},
		{"one without devices has nothing to lose, and counts", one, []cycle{{0, `a | env 1 alice | env 2 alice | dev 0 1@01`, ""}}},
		{"two users are counted apart", one, []cycle{{0, `a | env 1 alice | env 2 bob | dev 0 1@01 | dev 1 2@02`, ""}}},
		{"no cap", stated{}, []cycle{{0, `a | env 1 alice | env 2 alice | dev 0 1@01 | dev 1 2@02`, ""}}},
		{"a user without a name", stated{all: enforce.Settings{MaxEnvs: new(0)}}, []cycle{{0, `a | env 1 - | dev 0 1@01`, ""}}},
	})
}

func TestDurationsAsPeopleSayThem(t *testing.T) {
	for limit, want := range map[time.Duration]string{
		14 * 24 * time.Hour: "14d", 4 * time.Hour: "4h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 26*time.Hour + 5*time.Minute: "1d2h5m", 59 * time.Second: "59s",
		59*time.Minute + 40*time.Second: "1h",
	} {
		f := enforce.Finding{Rule: enforce.RuleMaxDuration, EID: "1", Devices: []snapshot.DeviceIndex{0}, For: limit, Limit: limit}
		require.Equal(t, "Environment 1 is attached to GPU 0 for "+want+", and "+want+" are allowed", f.String())
	}
}
