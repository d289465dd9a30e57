package policy_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestRefusedCaps(t *testing.T) {
	for text, want := range map[string]string{
		"gpus: ":            "p.yaml:1:9: gpus: expected a number, as in `0`, but found nothing",
		"gpus: [1]":         "p.yaml:1:15: gpus: expected a number, as in `0`, but found a list",
		"gpus: 1, when: []": "p.yaml:1:24: when: expected text, as in `word`, but found a list",
		"memory: []":        "p.yaml:1:17: memory: expected text, as in `word`, but found a list",
	} {
		err := policy.Check("p.yaml", []byte("caps: [{"+text+"}]"))
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n", "each is said once")
	}
	rows := []bad{
		{"no amount", "{name: a}", "p.yaml:1:9: a cap has exactly one of gpus, memory, environments and gpu-hours"},
		{"two amounts", "{gpus: 1, memory: 1g}", "p.yaml:1:9: a cap has exactly one of gpus, memory"},
		{"hours without a period", "{gpu-hours: 3}", "gpu-hours: the period is missing; add `every: month`"},
		{"a period without hours", "{gpus: 3, every: week}", "every: it belongs to gpu-hours"},
		{"another period", "{gpu-hours: 3, every: day}", "unknown value \"day\""},
		{"a share of environments", "{environments: 50%}", "environments: N% and -N are for gpus alone"},
		{"all but some environments", "{environments: -1}", "environments: N% and -N are for gpus alone"},
		{"over 100 per cent", "{gpus: 101%}", "\"101%\" is not from 1% to 100%"},
		{"no per cent", "{gpus: 0%}", "\"0%\" is not from 1% to 100%"},
		{"a word", "{gpus: many}", "p.yaml:1:15: gpus: expected a number"},
		{"by person together", "{gpus: {alice: 1}, together: true}", "people who share a cap have one amount"},
		{"a share by person", "{gpus: {alice: 50%}}", "write a number for each person"},
		{"an unknown group", `{gpus: 1, users: ["@nobody"]}`, "no such group in `groups:`"},
		{"an unknown group by person", `{gpus: {"@nobody": 1}}`, "no such group in `groups:`"},
		{"an unknown schedule", "{gpus: 1, when: nights}", "when: there are no schedules in the file"},
		{"for no one who waits", "{gpus: 1, while: {waiting: []}}", "waiting: name users or groups, or write anybody"},
		{"without a user", "{gpus: 0, users: []}", "p.yaml:1:25: users: name users or groups; leave it out for everybody"},
		{"on no host", "{gpus: 0, of: {hosts: []}}", "p.yaml:1:30: hosts: name hosts; leave it out for all"},
		{"by no person", "{gpus: {}}", "gpus: write a number, or numbers by person"},
		{"while nothing", "{gpus: 1, while: {}}", "while: write {waiting: [users]} or {waiting: anybody}"},
		{"memory while others wait", "{memory: 1g, while: {waiting: anybody}}", "while: only a cap of gpus can have it; remove it"},
		{"hours on each host", "{gpu-hours: 1, every: week, per: host}", "gpu-hours: they count on all hosts together; remove `per` and `while`"},
		{"environments of a model", "{environments: 1, of: {model: A100}}", "environments: they have no model; remove it from `of`"},
		{"a long name", "{gpus: 1, name: " + strings.Repeat("a", 33) + "}", "name: at most 32 printable characters without /"},
		{"a name with a slash", "{gpus: 1, name: a/b}", "name: at most 32 printable characters without /"},
		{"the name of a rule", "{gpus: 1, name: idle}", "name: idle is the name of a rule"},
		{"two of one name", "{gpus: 1, name: a}, {gpus: 2, name: a}", "p.yaml:1:29: the cap at p.yaml:1:9 has the name a, too"},
		{"two that say the same", "{gpus: 1}, {gpus: 1}", "the cap at p.yaml:1:9 says the same"},
		{"an unknown key", "{gpu: 1}", "unknown key \"gpu\"; did you mean \"gpus\"?"},
		{"hosts beside of", "{gpus: 1, hosts: [a]}", "hosts: it is a part of `of`: write of: {hosts: …}"},
		{"no name after !", `{gpus: 1, users: ["!"]}`, `p.yaml:1:26: there is no name after the "!"`},
		{"not not", `{gpus: 1, users: ["!!bob"]}`, `p.yaml:1:26: "!bob" is not a user name`},
		{"all but, by person", `{gpus: {"!bob": 1}}`, `p.yaml:1:16: "!bob" is not a user name`},
		{"a Unix group without a name", `{gpus: 1, users: ["%"]}`, `p.yaml:1:26: "%" is not a Unix group`},
		{"no host after !", `{gpus: 1, of: {hosts: ["!"]}}`, `p.yaml:1:31: there is no name after the "!"`},
		{"for anybody in a list", "{gpus: 1, while: {waiting: [anybody]}}", "p.yaml:1:35: waiting: write anybody without brackets"},
		{"for everybody in a list", `{gpus: 1, while: {waiting: ["*"]}}`, "p.yaml:1:35: waiting: write anybody without brackets"},
		{"memory without a unit", "{memory: 320}", "p.yaml:1:17: memory: 320 is 320 bytes; write it with a unit, as in 80g"},
		{"65 caps", "{gpus: 1, name: c0}, " + manyCaps(64), "there are more than 64 caps"},
	}
	for i := range rows {
		rows[i].yaml = "caps: [" + rows[i].yaml + "]"
	}
	refused(t, append(rows,
		bad{"devices of a group", "defaults: {max-devices-per-group: 4}", `caps: [{users: ["@group"], together: true, gpus: 4}]`},
		bad{"memory of a group", "defaults: {max-memory-per-group: 4}", `together: true, memory: 80g}]`},
		bad{"reserving for all", "reservations: [{gpus: 1}]", "reservations: say who may reserve"},
		bad{"reserving for none", "reservations: [{users: []}]", "users: name users or groups"},
		bad{"dates", "schedules: {s: [{from: 2026-12-20, to: 2026-12-19}]}", "to: 2026-12-19 is before 2026-12-20"}))
}

func manyCaps(n int) string {
	var list []string
	for i := range n {
		list = append(list, "{gpus: 1, name: m"+string(rune('a'+i/26))+string(rune('a'+i%26))+"}")
	}
	return strings.Join(list, ", ")
}

// All that the rules of sites use can be read.
func TestAcceptedCaps(t *testing.T) {
	for _, caps := range []string{
		"{gpus: 4}", "{memory: 320g}", "{environments: 8}", "{gpu-hours: 0.5, every: month, together: true}", manyCaps(64), `{gpus: 1, users: ["%domain users", "!%LAB\\\\guests"]}`,
		`{name: nlp paid 4, users: ["!%nlp"], together: true, of: {labels: {pool: shared}}, gpus: -4, while: {waiting: ["%nlp"]}, warn: 30m}`,
		"{name: share, gpus: 2, while: {waiting: anybody}}", `{gpus: 1, of: {hosts: ["gpu-[01-09]", "!gpu-04"], model: "a100*"}}`,
		`{gpus: {"*": 1, "%students": 0, alice: 2}}`, "{gpus: 1, warn: false}", "{gpus: 1, warn: {cycles: 3}}",
	} {
		parse(t, "caps: ["+caps+"]")
	}
	parse(t, `reservations: [{users: ["%lab"], gpus: 3, longest: 1d, ahead: 14d, at-once: 1, pause: 1d}]`)
}

// A limit by person is that of the name, else the largest of the groups, else that of all others; the largest if
// unknown.
func TestLimitsByPerson(t *testing.T) {
	file := parse(t, `
groups: {students: [alice, bob], staff: [bob]}
caps: [{name: c, gpus: {"*": 1, "@students": 2, "@staff": 5, "%nlp": 7, alice: 3}}, {name: d, gpus: {"%nlp": 7}}, {name: e, gpus: 1, users: ["!%nlp"]}]`)
	known := map[snapshot.Username]enforce.Membership{"nora": enforce.Member, "alice": enforce.NotMember, "bob": enforce.NotMember, "dora": enforce.NotMember}
	file.UnixGroups = func(user snapshot.Username, _ string) enforce.Membership {
		if m, ok := known[user]; ok {
			return m
		}
		return enforce.MembershipUnknown
	}
	caps := file.Caps(time.Now())
	for user, want := range map[snapshot.Username]int64{"alice": 3, "bob": 5, "nora": 7, "dora": 1, "who": 7} {
		limit, about := caps[0].Limit(user)
		require.True(t, about)
		require.Equal(t, want, limit.Value, user)
	}
	for user, want := range map[snapshot.Username]bool{"nora": true, "dora": false, "who": false} {
		_, about := caps[1].Limit(user)
		require.Equal(t, want, about, user)
	}
	for user, want := range map[snapshot.Username]enforce.Membership{"nora": enforce.NotMember, "dora": enforce.Member, "who": enforce.MembershipUnknown} {
		require.Equal(t, want, caps[2].Member(user), user)
	}
	require.Equal(t, []string{"nlp"}, file.UnixGroupNames())
}

// A schedule with dates holds on both of them, and one of a cap switches it on and off.
func TestCapsWithDates(t *testing.T) {
	file := parse(t, `
timezone: UTC
schedules: {holidays: [{from: 2026-12-20, to: 2027-01-06}], terms: [{days: mon-fri, hours: 8-20, from: 2027-01-07}]}
caps: [{name: a, gpus: 8, when: holidays}, {name: b, gpus: 1, when: terms}]`)
	for at, want := range map[string]string{
		"2026-12-19T23:59:59Z": "", "2026-12-20T00:00:00Z": "a", "2027-01-06T23:59:59Z": "a", "2027-01-07T00:00:00Z": "",
		"2027-01-07T08:00:00Z": "b", "2027-01-09T12:00:00Z": "",
	} {
		moment := proctest.Try(time.Parse(time.RFC3339, at)).OK(t)
		names := ""
		for _, c := range file.Caps(moment) {
			names += c.Name
		}
		require.Equal(t, want, names, at)
	}
}

// A cap of a schedule ends with the hours in which it holds now, also over midnight and new year, and where others follow.
func TestWhenScheduledCapsEnd(t *testing.T) {
	for schedule, want := range map[string]string{
		"{days: mon-fri, hours: 8-20}": "2026-12-31 20:00", "{hours: 10-3}": "2027-01-01 03:00", "{days: thu}": "2027-01-01 00:00",
		"{days: thu, hours: 8-24}, {days: fri, hours: 0-5}": "2027-01-01 05:00", "{days: mon-sun}": "",
		"{from: 2026-12-20, to: 2027-01-06}": "2027-01-07 00:00", "{to: 2027-03-28, hours: 22-21}": "2026-12-31 21:00",
		"{hours: 8-20}, {from: 2026-12-31, to: 2026-12-31, hours: 19-6}": "2027-01-01 06:00",
	} {
		file := parse(t, "timezone: Europe/Berlin\nschedules: {s: ["+schedule+"]}\ncaps: [{gpus: 1, when: s}]")
		list := file.Caps(berlin(t, "2026-12-31 12:00"))
		require.Len(t, list, 1, schedule)
		if want == "" {
			require.Zero(t, list[0].PeriodEnd, schedule)
			continue
		}
		require.True(t, berlin(t, want).Equal(list[0].PeriodEnd), "%s: %s", schedule, list[0].PeriodEnd)
	}
}

func TestPeriodsOfHours(t *testing.T) {
	file := parse(t, "timezone: Europe/Berlin\ncaps: [{name: w, gpu-hours: 1, every: week}, {name: m, gpu-hours: 1, every: month}]")
	berlin := proctest.Try(time.LoadLocation("Europe/Berlin")).OK(t)
	for _, tt := range []struct{ at, week, month string }{
		{"2026-11-29 23:59", "2026-11-23", "2026-11-01"}, // a Sunday
		{"2026-11-30 00:00", "2026-11-30", "2026-11-01"},
		{"2026-12-31 12:00", "2026-12-28", "2026-12-01"},
	} {
		at := proctest.Try(time.ParseInLocation("2006-01-02 15:04", tt.at, berlin)).OK(t)
		caps := file.Caps(at)
		require.Equal(t, tt.week, caps[0].Period.Format(time.DateOnly), tt.at)
		require.Equal(t, tt.month, caps[1].Period.Format(time.DateOnly), tt.at)
		require.True(t, caps[0].PeriodEnd.Equal(caps[0].Period.AddDate(0, 0, 7)))
	}
}

// Who is exempt from caps is in none, or not in one of that name; a host that is counts for none.
func TestExemptFromCaps(t *testing.T) {
	file := parse(t, "caps: [{name: c, gpus: 0}, {name: d, gpus: 0}, {gpus: 3}]")
	now := time.Now()
	for _, tt := range []struct {
		who                policy.Who
		about, aboutOnHost string // caps that bob is in, and that host a counts for
	}{
		{policy.Who{User: "bob", Rule: enforce.RuleCaps}, "", "0,1,2"},
		{policy.Who{User: "bob", Rule: "d"}, "0,2", "0,1,2"},
		{policy.Who{User: "bob", Rule: enforce.Rule(file.CapList[2].ID)}, "0,1", "0,1,2"},
		{policy.Who{Host: "a", Rule: enforce.RuleCaps}, "0,1,2", ""},
		{policy.Who{Host: "a", Rule: "c"}, "0,1,2", "1,2"},
		{policy.Who{User: "bob", Rule: enforce.RuleIdle}, "0,1,2", "0,1,2"},
	} {
		list := policy.ExemptionList{{Who: tt.who, Reason: "a paper", By: "root", Created: now, Until: now.Add(time.Hour)}}
		require.NoError(t, list[0].Check())
		require.NoError(t, list[0].CheckRule(file))
		var about, on []string
		for i, c := range policy.WithExemptions(file, list, now).Caps(now) {
			require.Equal(t, enforce.Member, c.Member("alice"))
			require.True(t, c.OnHost("b", nil))
			if c.Member("bob") == enforce.Member {
				about = append(about, strconv.Itoa(i))
			}
			if c.OnHost("a", nil) {
				on = append(on, strconv.Itoa(i))
			}
		}
		require.Equal(t, tt.about, strings.Join(about, ","), tt.who)
		require.Equal(t, tt.aboutOnHost, strings.Join(on, ","), tt.who)
	}
	typo := policy.Who{User: "bob", Rule: "idel"}
	require.EqualError(t, typo.CheckRule(file), `idel is neither a rule nor a cap of the policy: did you mean "idle"?`)
	require.Equal(t, `user bob from cap "nlp paid 4"`, (&policy.Who{User: "bob", Rule: "nlp paid 4"}).String())
}

func TestExplainedCaps(t *testing.T) {
	file := parse(t, `timezone: UTC
schedules: {office: [{hours: 8-20}]}
caps:
  - {name: a100, gpus: 2, of: {model: "A100*"}}
  - {name: b, gpus: 50%, together: true, users: [alice, "!bob"]}
  - {name: c, gpu-hours: 20, every: week, users: ["%vision"]}
  - {name: d, gpus: -1, per: host, together: true, of: {labels: {use: train}}, when: office}
  - {name: e, gpus: {"*": 1, carol: 2}, of: {hosts: ["gpu-[01-04]"]}}
  - {name: f, memory: 320g, of: {hosts: [gpu-09]}}
  - {name: g, gpus: 1, warn: {for: 1m}, while: {waiting: [dora]}}
  - {environments: 8}`)
	var lines []string
	q := enforce.Query{User: "carol", Host: "gpu-02", Labels: map[string]string{"use": "train"}, At: time.Date(2026, 12, 1, 7, 0, 0, 0, time.UTC)}
	for _, e := range file.Explain(q) {
		if strings.HasPrefix(e.Key, "cap ") {
			lines = append(lines, e.Key+" | "+e.Value+" | "+e.From)
		}
	}
	require.Equal(t, []string{
		"cap a100 | 2 GPUs each of model A100* on all hosts together, for everybody | caps, p.yaml:4:6",
		"cap c | 20 GPU hours a week each on all hosts together, for %vision (if the user is in it, which is unknown) | caps, p.yaml:6:6",
		"cap d | all but 1 of the working GPUs with label use=train on all hosts, each by itself, shared by everybody, in schedule office, warn: {for: 30m} (not now) | caps, p.yaml:7:6",
		"cap e | GPUs (1 for *, 2 for carol) on gpu-[01-04] together, for everybody | caps, p.yaml:8:6",
		"cap g | 1 GPU each on all hosts together, for everybody, as far as others wait: dora, warn: {for: 1m} | caps, p.yaml:10:6",
		"cap " + file.CapList[7].ID + " | 8 environments each on all hosts together, for everybody | caps, p.yaml:11:6",
	}, lines)
}

// TestExplainedReservations says what a user may reserve, where the policy says who may.
func TestExplainedReservations(t *testing.T) {
	file := parse(t, "reservations:\n  - {users: [carol], gpus: 2, longest: 3d, ahead: 30d, at-once: 1, pause: 1d}\n  - {users: [dora, \"%lab\"]}")
	for user, want := range map[snapshot.Username]string{
		"carol": "2 GPUs, at most 3d, 30d ahead, 1 at once, 1d after the last one", "dora": "any number of GPUs",
		"eve": "unknown, since the groups of the user are", "": "",
	} {
		said := ""
		for _, e := range file.Explain(enforce.Query{User: user}) {
			if e.Key == "reservations" {
				said = e.Value
			}
		}
		require.Equal(t, want, said, user)
	}
	file.UnixGroups = unix(nil)
	require.Contains(t, file.Explain(enforce.Query{User: "eve"}), policy.Explanation{Key: "reservations", Value: "nothing", From: "reservations"})
}

// A cap may be about the hosts of a group of the inventory. Without the inventory it is about no GPU.
func TestCapsOfGroupsOfHosts(t *testing.T) {
	file := parse(t, `caps: [{name: in, gpus: 1, of: {hosts: ["@big"]}}, {name: out, gpus: 1, of: {hosts: ["*", "!@big"]}}]`)
	on := func() (names []string) {
		for _, host := range []snapshot.Hostname{"GPU-1", "gpu-2"} {
			for _, c := range file.Caps(time.Now()) {
				if c.OnHost(host, nil) {
					names = append(names, c.Name+" "+string(host))
				}
			}
		}
		return names
	}
	require.Empty(t, on())
	file.HostGroups = map[string][]string{"big": {"gpu-1"}}
	require.Equal(t, []string{"in GPU-1", "out gpu-2"}, on())
}

// The rules of real sites can be read as they are written, and none of their caps is without effect.
func TestPoliciesOfSites(t *testing.T) {
	paths := proctest.Try(filepath.Glob("testdata/sites/*.yaml")).OK(t)
	require.Len(t, paths, 12)
	for _, path := range paths {
		data := proctest.ReadFile(t, path)
		file := proctest.Try(policy.Parse(path, data)).OK(t)
		require.Empty(t, warned(file, "cap", nil), path)
		require.Empty(t, file.Ignored, path)
	}
}

// TestBooking: the first rule about a person says what may be reserved.
func TestBooking(t *testing.T) {
	f := parse(t, "reservations:\n- {users: [alice], gpus: 4}\n- {users: [\"%staff\"], gpus: 2, longest: 3d, ahead: 30d, at-once: 1, pause: 1d}\n- {users: [\"*\", \"!bob\"], gpus: 1}\n")
	known := true
	f.AskUnix(func(user, group string) (bool, bool) { return user == "carol" && group == "staff", known })
	for user, want := range map[snapshot.Username]*snapshot.ReservationRule{
		"alice": {GPUs: 4}, "carol": {GPUs: 2, Longest: 72 * time.Hour, Ahead: 720 * time.Hour, AtOnce: 1, Pause: 24 * time.Hour}, "dave": {GPUs: 1}, "bob": nil,
	} {
		rule, known := f.ReservationRule(user)
		require.True(t, known, user)
		require.Equal(t, want, rule, user)
	}
	known = false
	for user, want := range map[snapshot.Username]bool{"alice": true, "carol": false, "dave": false} {
		_, known := f.ReservationRule(user)
		require.Equal(t, want, known, user)
	}
}

// A system account counts if an override or a cap names it.
func TestNamedSystemAccounts(t *testing.T) {
	f := parse(t, `{groups: {services: [gitlab]}, caps: [{gpus: 1, users: [jupyter, "!render"]}, {gpus: {"@services": 2}}], overrides: [{users: [slurm], set: {idle: {after: 2h}}}]}`)
	for user, want := range map[snapshot.Username]bool{"jupyter": true, "gitlab": true, "slurm": true, "render": false, "www-data": false} {
		require.Equal(t, want, f.Names(user), user)
	}
}
