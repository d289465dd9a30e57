package policy_test

import (
	"regexp"
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

// berlin is a moment of the clock on the wall there; 16 November 2026 is a Monday.
func berlin(t testing.TB, text string) time.Time {
	t.Helper()
	zone := proctest.Try(time.LoadLocation("Europe/Berlin")).OK(t)
	return proctest.Try(time.ParseInLocation("2006-01-02 15:04", text, zone)).OK(t)
}

// ask puts every question to a file: a setting always has a source, and asking twice gives the same answer.
func ask(t *testing.T, file *policy.File, host, user string) {
	t.Helper()
	q := enforce.Query{Host: snapshot.Hostname(host), User: snapshot.Username(user), At: berlin(t, "2026-11-16 12:00")}
	require.Equal(t, file.Resolve(q), file.Resolve(q))
	for _, e := range file.Explain(q) {
		require.NotEmpty(t, e.Key)
		require.NotEmpty(t, e.Value, e.Key)
		require.NotEmpty(t, e.From, e.Key)
	}
	isExempt(file, "process "+user+" of ")
	isExempt(file, "environment "+host+" of "+user)
	file.ExemptIndices(q.Host)
}

func TestMostSpecificOverrideWins(t *testing.T) {
	file := parse(t, `
timezone: Europe/Berlin
groups: {team: [ann, bob], all: ["@team", eve]}
schedules: {day: [{days: mon-fri, hours: 8-18}]}
defaults: {idle: {after: 1h}}
overrides:
  - {hosts: [gpu-1], set: {idle: {after: 2h}}}
  - {hosts: ["gpu-[1-9]"], set: {idle: {after: 3h}}}
  - {labels: {gpu: h100, rack: a}, set: {idle: {after: 4h}}}
  - {labels: {gpu: h100}, set: {idle: {after: 5h}}}
  - {labels: {rack: b}, set: {idle: {after: 6h}}}
  - {users: ["@team"], set: {idle: {after: 7h}}}
  - {users: [bob], hosts: [gpu-7], set: {idle: {after: 8h}}}
  - {users: [bob], set: {idle: {after: 9h}}}
  - {users: ["@all"], set: {idle: {after: 10h}}}
  - {when: day, labels: {rack: b}, set: {idle: {after: 11h}}}
  - {users: [zoe], set: {idle: false}}
`)
	noon, night := berlin(t, "2026-11-16 12:00"), berlin(t, "2026-11-16 22:00")
	tests := []struct {
		name  string
		q     enforce.Query
		hours int
	}{
		{"defaults", enforce.Query{Host: "x", At: noon}, 1},
		{"a host's name over a pattern", enforce.Query{Host: "gpu-1", At: noon}, 2},
		{"whatever its case", enforce.Query{Host: "GPU-1", At: noon}, 2},
		{"a pattern", enforce.Query{Host: "gpu-2", At: noon}, 3},
		{"a pattern over labels", enforce.Query{Host: "gpu-2", Labels: map[string]string{"gpu": "h100", "rack": "a"}, At: noon}, 3},
		{"more labels over fewer", enforce.Query{Host: "x", Labels: map[string]string{"gpu": "h100", "rack": "a"}, At: noon}, 4},
		{"a label", enforce.Query{Host: "x", Labels: map[string]string{"gpu": "h100"}, At: noon}, 5},
		{"another value of it", enforce.Query{Host: "x", Labels: map[string]string{"gpu": "a100"}, At: noon}, 1},
		{"the later of two labels", enforce.Query{Host: "x", Labels: map[string]string{"gpu": "h100", "rack": "b"}, At: night}, 6},
		{"with a schedule over without", enforce.Query{Host: "x", Labels: map[string]string{"rack": "b"}, At: noon}, 11},
		{"outside of the schedule", enforce.Query{Host: "x", Labels: map[string]string{"rack": "b"}, At: night}, 6},
		{"a user's name over the group", enforce.Query{Host: "x", User: "bob", At: noon}, 9},
		{"a user over a host", enforce.Query{Host: "gpu-1", User: "bob", At: noon}, 9},
		{"a user on a host over the user", enforce.Query{Host: "gpu-7", User: "bob", At: noon}, 8},
		{"the later of two groups", enforce.Query{Host: "x", User: "ann", At: noon}, 10},
		{"a group of a group", enforce.Query{Host: "x", User: "eve", At: noon}, 10},
		{"a user without overrides", enforce.Query{Host: "x", User: "joe", At: noon}, 1},
		{"no user asked for", enforce.Query{Host: "gpu-7", At: noon}, 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := file.Resolve(test.q)
			require.Equal(t, time.Duration(test.hours)*time.Hour, s.Idle.After, s.From["idle"])
		})
	}
	require.Nil(t, file.Resolve(enforce.Query{User: "zoe", At: noon}).Idle, "an override can switch off")
}

func TestSettingsAreOverriddenOneByOne(t *testing.T) {
	file := parse(t, "defaults: {max-devices-per-user: 4, max-envs-per-user: 3}\noverrides:\n  - {users: [bob], set: {max-devices-per-user: 0}}\n  - {users: [eve], set: {max-envs-per-user: false}}\n")
	bob, eve := file.Resolve(enforce.Query{User: "bob"}), file.Resolve(enforce.Query{User: "eve"})
	require.Equal(t, 0, *bob.MaxDevices, "a cap of 0 is a cap")
	require.Equal(t, 3, *bob.MaxEnvs)
	require.Equal(t, 4, *eve.MaxDevices)
	require.Nil(t, eve.MaxEnvs)
}

// An override for a group without members is for no one.
func TestOverrideForAnEmptyGroup(t *testing.T) {
	file := parse(t, `{groups: {none: []}, overrides: [{hosts: [a], users: ["@none"], set: {max-duration: 1h}}]}`)
	require.Zero(t, file.Settings(enforce.Query{Host: "a", User: "bob"}).MaxDuration)
	require.Zero(t, file.Settings(enforce.Query{Host: "a"}).MaxDuration)
}

func TestDefault(t *testing.T) {
	for name, file := range map[string]*policy.File{"built in": policy.Default(), "a file that says nothing of it": parse(t, "unreachable: hold")} {
		s := file.Resolve(enforce.Query{Host: "h", User: "u"})
		require.Equal(t, enforce.Settings{EnvDevices: true, EnvMemory: true, Grace: 10 * time.Second, MaxAge: time.Minute}, s.Settings, name)
		require.Equal(t, "built in", s.From["grace"].String())
	}
	require.False(t, policy.Default().Fleet().PauseCaps)
}

func TestSchedules(t *testing.T) {
	file := parse(t, `
timezone: Europe/Berlin
schedules:
  office: [{days: mon-fri, hours: 8-18}]
  nights: [{days: "fri,sun", hours: "22:30-06:15"}]
  weekend: [{days: [sat, sun]}]
  wrapped: [{days: sat-mon, hours: 0-1}]
  always: [{hours: 0-24}]
`)
	tests := []struct {
		at   string
		want string // of the schedules, the first letters
	}{
		{"2026-11-16 07:59", "a"},
		{"2026-11-16 08:00", "oa"},
		{"2026-11-16 17:59", "oa"},
		{"2026-11-16 18:00", "a"},
		{"2026-11-20 22:29", "a"},   // Friday
		{"2026-11-20 22:30", "na"},  // begins
		{"2026-11-21 06:14", "nwa"}, // Saturday
		{"2026-11-21 06:15", "wa"},
		{"2026-11-21 00:30", "nwra"},
		{"2026-11-21 23:00", "wa"}, // not a night of Saturday
		{"2026-11-22 23:00", "nwa"},
		{"2026-11-23 00:30", "nra"}, // Sunday's night, into Monday
		{"2026-11-23 06:14", "na"},
		{"2026-11-23 06:15", "a"},
		{"2026-11-24 00:30", "a"},
		{"2026-03-29 03:30", "nwa"}, // the clock was put forward an hour before
		{"2026-10-25 02:30", "nwa"}, // this half hour comes twice
	}
	for _, test := range tests {
		at := berlin(t, test.at)
		got := ""
		for _, s := range []struct{ name, letter string }{{"office", "o"}, {"nights", "n"}, {"weekend", "w"}, {"wrapped", "r"}, {"always", "a"}} {
			if file.Schedules[s.name].Contains(at.UTC()) {
				got += s.letter
			}
		}
		if test.at == "2026-03-29 03:30" || test.at == "2026-10-25 02:30" {
			test.want = "wa" // Saturday has no night
		}
		require.Equal(t, test.want, got, test.at)
	}
}

// isExempt reports whether what is named as "user raz", "uid 0", "host a", "process NAME of USER" or "environment NAME of
// USER" is exempt.
func isExempt(file *policy.File, what string) bool {
	kind, name, _ := strings.Cut(what, " ")
	name, user, _ := strings.Cut(name, " of ")
	id, _ := strconv.Atoi(name)
	uid := snapshot.UID(id)
	env := &snapshot.Environment{Username: snapshot.Username(user), Config: snapshot.EnvConfig{Name: name}}
	process := &snapshot.Process{Name: name, Username: snapshot.Username(user), UID: new(snapshot.UID(4711))}
	_, exempt := file.Exempt(map[string]enforce.Subject{
		"user": {User: snapshot.Username(name)}, "uid": {Process: &snapshot.Process{UID: &uid}},
		"host": {Host: snapshot.Hostname(name)}, "process": {Process: process}, "environment": {Environment: env},
	}[kind])
	return exempt
}

func TestExemptions(t *testing.T) {
	file := example(t)
	require.Equal(t, []enforce.ExemptGPU{{Index: 0, Entry: "gpu-01:0"}}, file.ExemptIndices("gpu-01"))
	require.Len(t, file.ExemptIndices("GPU-01"), 1)
	require.Empty(t, file.ExemptIndices("gpu-02"))
	more := parse(t, "exempt:\n  hosts: [\"a[1-2]\"]\n  devices: [GPU-12, MIG-3, \"::1:0\", \"b[1-2]:[0,2-3]\"]\n  processes: [\"a*b*c\", \"(x\"]\n")
	require.Equal(t, []enforce.ExemptGPU{{Index: 0, Entry: "b[1-2]:[0,2-3]"}, {Index: 2, Entry: "b[1-2]:[0,2-3]"}, {Index: 3, Entry: "b[1-2]:[0,2-3]"}}, more.ExemptIndices("b2"))
	require.Equal(t, []enforce.ExemptGPU{{Index: 0, Entry: "::1:0"}}, more.ExemptIndices("::1"))
	for uuid, want := range map[snapshot.GPUUUID]bool{"GPU-12": true, "MIG-3": true, "GPU-1": false, "": false} {
		_, exempt := more.Exempt(enforce.Subject{Host: "x", Device: &snapshot.Device{Index: 9, UUID: uuid}})
		require.Equal(t, want, exempt, uuid)
	}
	type rows = map[string]bool
	for file, rows := range map[*policy.File]rows{
		file: {
			"user raz": true, "user root": true, "user carol": false, "user ": false, "uid 0": true, "uid 1000": false,
			"host gpu-01": false, "process nvidia-cuda-mps-server of ": true, "process nvidia of ": false,
			"process nvidia-cuda-mps of ":         true, // as the kernel cuts it
			"process nvidia-cuda-mps-server2 of ": false, "process Xorg.bin of root": true, "process  of ": false,
			"process Xorg of eve": false, "process Xorg of ": false, // a name that any user can choose
			"environment llm/llama3/11434 of carol": true, "environment llm/llama3/11434 of eve": false,
			"environment train of carol": false,
		},
		more: {
			"host A2": true, "host a3": false, "process a-b\nc of ": true, "process a-c-b of ": false,
			"process (x of ": true, // no regular expression
		},
		policy.Default(): {"user ": false, "uid 0": false, "host ": false, "process  of ": false, "environment  of ": false},
	} {
		for what, want := range rows {
			require.Equal(t, want, isExempt(file, what), what)
		}
	}
	reason, _ := file.Exempt(enforce.Subject{User: "raz"})
	require.Regexp(t, `^user raz: exempt, policy\.example\.yaml:\d+:\d+$`, reason)
}

func TestExample(t *testing.T) {
	file := example(t)
	day, night := berlin(t, "2026-11-16 12:00"), berlin(t, "2026-11-16 22:00")
	devices := func(user string, at time.Time) int {
		return *file.Resolve(enforce.Query{Host: "gpu-01", User: snapshot.Username(user), At: at}).MaxDevices
	}
	require.Equal(t, 4, devices("zoe", day))
	require.Equal(t, 1, devices("alice", day))
	require.Equal(t, 4, devices("alice", night))
	require.Equal(t, 3, devices("bob", night), "his name over his group, whatever the hour")

	h100 := file.Resolve(enforce.Query{Host: "gpu-03", Labels: map[string]string{"gpu": "h100"}, At: day})
	require.Equal(t, enforce.Idle{After: time.Hour, Below: 10}, *h100.Idle)
	require.False(t, file.Resolve(enforce.Query{Host: "gpu-04", At: day}).NonEnvProcesses)
	require.True(t, file.Resolve(enforce.Query{Host: "gpu-04", At: night}).NonEnvProcesses)
	require.Equal(t, int64(320e9), h100.MaxMemory.Bytes())
	require.Equal(t, enforce.Warn{For: 30 * time.Minute}, h100.Warn)

	require.Len(t, file.Hooks, 3)
	require.Equal(t, []string{"/usr/local/bin/genv-notify"}, file.Hooks[0].Command)
	require.Equal(t, []policy.HookEvent{policy.OnLimit}, file.Hooks[1].On)
	require.Equal(t, 2, file.Hooks[1].Retries)
	require.True(t, file.Hooks[2].Slack)
	require.Equal(t, 200, file.Fleet().Limits.Fleet.Detachments)
}

func TestExplain(t *testing.T) {
	file := parse(t, `timezone: UTC
groups: {team: [bob]}
schedules: {day: [{hours: 8-18}]}
defaults:
  max-devices-per-user: 2
  warn: {cycles: 3}
  sudo-users: allow
overrides:
  - users: ["@team"]
    labels: {gpu: h100, rack: 2}
    when: day
    set: {idle: {after: 90m, below: 5}}
  - hosts: ["gpu-[1-4]"]
    set:
      kill: true
      unknown-environment: outside
exempt: {users: [bob], hosts: [gpu-2]}
limits: {max-terminations: 0, max-detachments-per-user: 3, over-limit: throttle}
tell-users: false
`)
	got := file.Explain(enforce.Query{Host: "gpu-2", User: "bob", Labels: map[string]string{"gpu": "h100", "rack": "2"}, At: berlin(t, "2026-11-16 12:00")})
	require.Equal(t, []policy.Explanation{
		{Key: "exempt", Value: "host gpu-2", From: "exempt, p.yaml:17:32"},
		{Key: "exempt", Value: "user bob", From: "exempt, p.yaml:17:18"},
		{Key: "non-env-processes", Value: "off", From: "built in"},
		{Key: "unreadable-processes", Value: "report", From: "built in"},
		{Key: "env-devices", Value: "on", From: "built in"},
		{Key: "max-process-age", Value: "off", From: "built in"},
		{Key: "env-memory", Value: "on", From: "built in"},
		{Key: "idle", Value: "{after: 1h30m, below: 5%}", From: "override for users @team; labels gpu=h100, rack=2; schedule day, p.yaml:12:18"},
		{Key: "max-duration", Value: "off", From: "built in"},
		{Key: "max-envs-per-user", Value: "off", From: "built in"},
		{Key: "max-devices-per-user", Value: "2", From: "defaults, p.yaml:5:25"},
		{Key: "max-memory-per-user", Value: "off", From: "built in"},
		{Key: "sudo-users", Value: "allow", From: "defaults, p.yaml:7:15"},
		{Key: "unknown-environment", Value: "outside", From: "override for hosts gpu-[1-4], p.yaml:16:28"},
		{Key: "containers", Value: "judge", From: "built in"},
		{Key: "graphics", Value: "leave", From: "built in"},
		{Key: "warn", Value: "{cycles: 3}", From: "defaults, p.yaml:6:10"},
		{Key: "grace", Value: "10s", From: "built in"},
		{Key: "kill", Value: "on", From: "override for hosts gpu-[1-4], p.yaml:15:13"},
		{Key: "guard", Value: "off", From: "built in"},
		{Key: "max-age", Value: "1m", From: "built in"},
		{Key: "max-terminations", Value: "off", From: "limits, p.yaml:18:28"},
		{Key: "max-detachments", Value: "off", From: "built in"},
		{Key: "max-terminations-per-user", Value: "off", From: "built in"},
		{Key: "max-detachments-per-user", Value: "3", From: "limits, p.yaml:18:57"},
		{Key: "max-terminations-per-host", Value: "off", From: "built in"},
		{Key: "max-detachments-per-host", Value: "off", From: "built in"},
		{Key: "over-limit", Value: "throttle", From: "limits, p.yaml:18:72"},
		{Key: "unreachable", Value: "ignore", From: "built in"},
		{Key: "tell-users", Value: "off", From: "the file, p.yaml:19:13"},
	}, got)
}

// TestPage checks docs/policy.md: each recipe is a whole policy, and every setting is described.
func TestPage(t *testing.T) {
	data := proctest.ReadFile(t, "../../docs/policy.md")
	page := string(data)
	recipes := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1)
	require.Len(t, recipes, 11)
	for _, recipe := range recipes {
		parse(t, recipe[1])
	}
	for _, setting := range policy.Default().Explain(enforce.Query{}) {
		require.Contains(t, page, "`"+setting.Key+"`")
	}
}
