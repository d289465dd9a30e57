package enforce_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
)

// parseRequest reads a request: ID, uid, EID, DEVICE@MINUTE of its attachment, minutes. Without
// words, the host reports no request.
func parseRequest(t *testing.T, s *snapshot.Snapshot, words []string) {
	if s.Extensions == nil {
		s.Extensions = []snapshot.Extension{}
	}
	if len(words) == 0 {
		return
	}
	device, minute, _ := strings.Cut(words[3], "@")
	at, err := snapshot.ParseDate("20/11/2026 10:" + minute + ":00")
	require.NoError(t, err)
	s.Extensions = append(s.Extensions, snapshot.Extension{
		ID: words[0], UID: snapshot.UID(number(t, words[1])), EID: snapshot.EnvID(words[2]), Index: index(t, device), Attached: at,
		For: time.Duration(number(t, words[4])) * time.Minute,
	})
}

// decided are the decisions of a cycle.
func decided(events []enforce.Event) string {
	var list []string
	for i := range events {
		if events[i].Kind == enforce.EventExtension {
			list = append(list, events[i].ID+" "+events[i].Extension.Action())
		}
	}
	return strings.Join(list, "; ")
}

const (
	lease  = `a | env 1 alice u7 | dev 0 1@01`
	asking = lease + ` | ask x 7 1 0@01 60`
	yes    = "extend/a/7/0/x extended"
)

// look is a cycle with what is decided on requests in it.
type look struct {
	cycle
	decided string
}

func looks(list ...look) []look { return list }

func at(minute int, cluster, want, decided string) look {
	return look{cycle{minute, cluster, want}, decided}
}

func TestExtensions(t *testing.T) {
	const day = 24 * 60
	two := stated{all: enforce.Settings{MaxDuration: 2 * time.Hour, Extend: time.Hour}}
	policy := func(change func(*enforce.Settings)) stated {
		p := two
		change(&p.all)
		return p
	}
	idle := stated{all: enforce.Settings{Idle: &enforce.Idle{After: 40 * time.Minute}, Extend: 20 * time.Minute}}
	free, exempt := `a | env 1 alice u7 | dev 0`, two
	exempt.exempt = func(s enforce.Subject) bool { return s.Environment != nil }
	for _, tt := range []struct {
		name   string
		policy stated
		looks  []look
	}{
		{"a lease is lengthened by what is asked for", two, looks(at(0, asking, "", yes), at(61, asking, "", ""), at(62, asking, "a detach 0 1", ""))},
		{"also when the request comes during the warning", policy(func(s *enforce.Settings) { s.Warn.For = 10 * time.Minute }), looks(
			at(5, lease, "", ""), at(6, asking, "", yes), at(60, asking, "", ""), at(62, asking, "", ""), at(72, asking, "a detach 0 1", ""))},
		{"and by what the policy allows, if that is less", policy(func(s *enforce.Settings) { s.Extend = 10 * time.Minute }), looks(at(0, asking, "", yes), at(11, asking, "", ""), at(12, asking, "a detach 0 1", ""))},
		{"a huge number is one of these", two, looks(at(0, lease+` | ask x 7 1 0@01 525600`, "", yes), at(62, lease, "a detach 0 1", ""))},
		{"what was granted lasts without the request", two, looks(at(0, asking, "", yes), at(61, lease, "", ""), at(62, lease, "a detach 0 1", ""))},
		{"an idle time is lengthened", idle, looks(at(0, asking, "", yes), at(10, asking, "", ""), at(20, asking, "", ""), at(30, asking, "", ""), at(40, asking, "", ""), at(50, asking, "", ""), at(59, asking, "", ""), at(60, asking, "a detach 0 1", ""))},
		{"two users each have one", two, looks(at(0, `a | env 1 alice u7 | env 2 bob u8 | dev 0 1@01 2@01 | ask x 7 1 0@01 60 | ask y 8 2 0@01 60`, "", yes+"; extend/a/8/0/y extended"))},
		{"one on each device", two, looks(at(0, `a | env 1 alice u7 | dev 0 1@01 | dev 1 1@01 | ask x 7 1 0@01 60 | ask y 7 1 1@01 60`, "", yes+"; extend/a/7/1/y extended"))},
		{"again after a day without the device", two, looks(at(0, asking, "", yes), at(1, free, "", ""), at(300, free, "", ""), at(600, free, "", ""), at(900, free, "", ""), at(1200, free, "", ""), at(day+2, free, "", ""),
			at(day+3, `a | env 1 alice u7 | dev 0 1@59 | ask z 7 1 0@59 60`, "a detach 0 1", "extend/a/7/0/z extended"))},

		{"not if the policy doesn't allow it", policy(func(s *enforce.Settings) { s.Extend = 0 }), looks(at(0, asking, "", "extend/a/7/0/x not-extended"), at(1, asking, "", ""), at(2, asking, "a detach 0 1", ""))},
		{"not if nothing limits it", stated{all: enforce.Settings{Extend: time.Hour}}, looks(at(0, asking, "", "extend/a/7/0/x not-extended"), at(1, asking, "", ""))},
		{"not twice", two, looks(at(0, asking, "", yes), at(1, lease+` | ask y 7 1 0@01 120`, "", "extend/a/7/0/y not-extended"), at(2, lease+` | ask y 7 1 0@01 120`, "", ""), at(62, lease, "a detach 0 1", ""))},
		{"not after detaching and attaching", two, looks(at(0, asking, "", yes), at(1, free, "", ""),
			at(8, `a | env 1 alice u7 | dev 0 1@06 | ask y 7 1 0@06 60`, "a detach 0 1", "extend/a/7/0/y not-extended"))},
		{"not with another environment of the same user", two, looks(at(0, asking, "", yes),
			at(8, `a | env 1 alice u7 | env 2 alice u7 | dev 0 1@01 2@02 | ask y 7 2 0@02 60`, "a detach 0 2", "extend/a/7/0/y not-extended"))},
		{"not after a day in which the user was attached", two, looks(at(0, asking, "", yes), at(1, free, "", ""), at(300, free, "", ""), at(600, lease, "a detach 0 1", ""), at(900, free, "", ""), at(1200, free, "", ""), at(day+2, free, "", ""),
			at(day+5, `a | env 1 alice u7 | dev 0 1@59 | ask z 7 1 0@59 60`, "a detach 0 1", "extend/a/7/0/z not-extended"))},
		{"not after a day without a look", two, looks(at(0, asking, "", yes), at(1, free, "", ""), at(day+5, free, "", ""),
			at(day+6, `a | env 1 alice u7 | dev 0 1@59 | ask z 7 1 0@59 60`, "a detach 0 1", "extend/a/7/0/z not-extended"))},
		{"not after a day in which the host was silent", two, looks(at(0, asking, "", yes), at(1, free, "", ""), at(300, "a | down", "", ""), at(600, "a | down", "", ""), at(900, "a | down", "", ""), at(1200, "a | down", "", ""), at(day+5, free, "", ""),
			at(day+6, `a | env 1 alice u7 | dev 0 1@59 | ask z 7 1 0@59 60`, "a detach 0 1", "extend/a/7/0/z not-extended"))},
		{"not for another user's environment", two, looks(at(8, lease+` | ask x 8 1 0@01 60`, "a detach 0 1", ""))},
		{"not for an environment in another's name", two, looks(at(8, `a | env 1 alice u8 | dev 0 1@01 | ask x 7 1 0@01 60`, "a detach 0 1", ""))},
		{"not for an attachment of another time", two, looks(at(8, lease+` | ask x 7 1 0@00 60 | ask y 7 1 0@59 60`, "a detach 0 1", ""))},
		{"not for a device that isn't attached", two, looks(at(0, `a | env 1 alice u7 | dev 0 1@01 | dev 1 | ask x 7 1 1@01 60`, "", ""))},
		{"not for an environment that isn't there", two, looks(at(8, lease+` | ask x 7 9 0@01 60`, "a detach 0 1", ""))},
		{"not on another host", two, looks(at(8, asking+"\nb | env 1 alice u7 | dev 0 1@01", "b detach 0 1", yes))},
		{"not for what is exempt", exempt, looks(at(8, asking, "", ""))},
		{"not the idle times after the one", idle, looks(at(0, asking, "", yes), at(10, asking, "", ""), at(20, asking+` | proc 5 1 u7 0:1`, "", ""), at(30, asking, "", ""), at(40, asking, "", ""), at(50, asking, "", ""), at(60, asking, "", ""), at(70, asking, "a detach 0 1", ""))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var memory controllerMemory
			for i, c := range tt.looks {
				plan := memory.Judge(tt.policy, parseCluster(t, c.cluster), noon(c.minute))
				require.Equal(t, c.want, planText(plan), "cycle %d", i+1)
				require.Equal(t, c.decided, decided(memory.events), "cycle %d", i+1)
				data, err := json.Marshal(memory.Memory) // as over a restart of the controller
				require.NoError(t, err)
				memory.Memory = enforce.Memory{}
				require.NoError(t, json.Unmarshal(data, &memory.Memory))
			}
		})
	}
}

func TestExtensionsOutliveTheirPolicyAndClockSteps(t *testing.T) {
	two := stated{all: enforce.Settings{MaxDuration: 2 * time.Hour, Extend: time.Hour}}
	none := stated{all: enforce.Settings{MaxDuration: 2 * time.Hour}}
	var memory controllerMemory
	memory.Judge(two, parseCluster(t, asking), noon(0))
	require.Empty(t, planText(memory.Judge(none, parseCluster(t, lease), noon(30))), "what was granted stays")

	memory.Judge(two, parseCluster(t, `a | env 1 alice u7 | dev 0`), noon(31))
	memory.Memory = memory.At(noon(31).Add(48 * time.Hour))
	again := parseCluster(t, `a | env 1 alice u7 | dev 0 1@59 | ask z 7 1 0@59 60`)
	memory.Judge(two, again, noon(32).Add(48*time.Hour))
	require.Equal(t, "extend/a/7/0/z not-extended", decided(memory.events), "a clock that was set is no day without the device")

	memory.Judge(two, parseCluster(t, `b | dev 0`), noon(33).Add(48*time.Hour))
	require.Empty(t, memory.Extended, "the host left the fleet")
}

// A host that makes users up has only its own requests wait.
func TestExtensionsAreBounded(t *testing.T) {
	two := stated{all: enforce.Settings{MaxDuration: 2 * time.Hour, Extend: time.Hour}}
	cluster := parseCluster(t, "a | dev 0\nb | env 1 alice u7 | dev 0 1@01 | ask x 7 1 0@01 60")
	s, date := cluster.Hosts[0].Snapshot, cluster.Hosts[1].Snapshot.Devices[0].Attachments[0].Time
	for i := range 2000 {
		eid := snapshot.EnvID(itoa(i))
		s.Environments = append(s.Environments, snapshot.Environment{EID: eid, UID: snapshot.UID(i)})
		s.Devices[0].Attachments = append(s.Devices[0].Attachments, snapshot.Attachment{EID: eid, Time: date})
		s.Extensions = append(s.Extensions, snapshot.Extension{ID: "x", UID: snapshot.UID(i), EID: eid, Attached: date, For: time.Minute})
	}
	var memory controllerMemory
	for cycle := range 6 {
		memory.Judge(two, cluster, noon(0))
		require.LessOrEqual(t, len(memory.Extended), 1024+1)
		require.Equal(t, cycle == 0, strings.Contains(decided(memory.events), "extend/b/7/0/x extended"))
	}
	require.Len(t, memory.Extended, 1024+1)
}

// The warning names the command only while it would be granted.
func TestTheWarningNamesTheExtension(t *testing.T) {
	warn := enforce.Settings{MaxDuration: 2 * time.Hour, Extend: time.Hour, Warn: enforce.Warn{For: 10 * time.Minute}}
	never := warn
	never.Extend = 0
	atOnce := warn
	atOnce.Warn = enforce.Warn{}
	for _, tt := range []struct {
		name     string
		settings enforce.Settings
		clusters []string
		named    bool
	}{
		{"it is possible", warn, []string{lease + " | ask"}, true},
		{"after a request that was refused", warn, []string{lease + " | ask x 8 1 0@01 60"}, true},

		{"the policy has none", never, []string{lease + " | ask"}, false},
		{"the host takes no requests", warn, []string{lease}, false},
		{"it is detached now", atOnce, []string{lease + " | ask"}, false},
		{"it was used", warn, []string{lease + ` | ask x 7 1 0@01 1`, lease + " | ask"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var memory controllerMemory
			var plan enforce.Plan
			for i, text := range tt.clusters {
				cluster := parseCluster(t, text)
				plan = memory.Judge(stated{all: tt.settings, fleet: enforce.Fleet{TellUsers: true}}, cluster, noon(8+i))
				for j := range plan.Findings {
					list := notify.Notifications(&plan.Findings[j], notify.NewOwners(cluster), noon(8+i))
					require.Len(t, list, 1)
					require.Equal(t, tt.named, strings.Contains(list[0].Advice, "genv extend 1h --eid 1 --index 0"), list[0].Advice)
					require.Equal(t, list[0].Advice, list[0].Details.Advice)
				}
			}
			require.Len(t, plan.Findings, 1)
		})
	}
}
