package policy_test

import (
	"cmp"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

func parse(t *testing.T, text string) *policy.File {
	t.Helper()
	return proctest.Try(policy.Parse("p.yaml", []byte(text))).OK(t)
}

// bad is a policy file, and the beginning or a part of what is said of it: from the line on, or from the message on.
type bad struct{ name, yaml, want string }

func refused(t *testing.T, tests []bad) {
	t.Helper()
	for _, test := range tests {
		t.Run(cmp.Or(test.name, test.yaml), func(t *testing.T) {
			file, err := policy.Parse("p.yaml", []byte(test.yaml))
			if test.want[0] >= '0' && test.want[0] <= '9' {
				test.want = "p.yaml:" + test.want
			}
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "\n")
			require.Nil(t, file, "nothing of a broken policy may come into force")
			var e *strictyaml.ParseError
			require.ErrorAs(t, err, &e)
		})
	}
}

func TestRefusedSettings(t *testing.T) {
	refused(t, []bad{
		{"unknown top key", "default: {}", `1:1: unknown key "default"; did you mean "defaults"?`},
		{"unknown rule", "defaults:\n  env-device: true", `2:3: unknown key "env-device"; did you mean "env-devices"?`},
		{"a flag's name", "defaults:\n  max-device-per-users: 3", `2:3: unknown key "max-device-per-users"; did you mean "max-devices-per-user"?`},
		{
			"far from all", "defaults:\n  colour: 3",
			`2:3: unknown key "colour"; use one of containers, env-devices, env-memory, grace, graphics, guard, idle, ` +
				`kill, max-age, max-devices-per-user, max-duration, max-envs-per-user, max-memory-per-user, max-process-age, ` +
				`non-env-processes, sudo-users, unknown-environment, unreadable-processes, warn`,
		},
		{"near an ignored one", "defaults:\n  extnd: 2h", `2:3: unknown key "extnd"; use one of containers`},
		{"a setting at the top", "max-devices-per-user: 4", "1:23: max-devices-per-user: write it under `defaults:`"},
		{"near another one", "defaults: {max-gpus-per-user: 4}", "max-gpus-per-user: write max-devices-per-user"},
		{"far from all, at the top", "shards: 4", `1:1: unknown key "shards"; use one of caps, contact, defaults, exempt, groups, hooks`},
		{"empty", "", "1:1: the file is empty or contains only comments; write its keys"},
		{"cap of -1", "defaults:\n  max-devices-per-user: -1", "2:25: a cap of -1 is negative; write 0 or more, or false for no cap"},
		{"cap of half", "defaults:\n  max-envs-per-user: 1.5", "2:22: max-envs-per-user: 1.5 is not a whole number from 0 to 1000000"},
		{"cap as text", "defaults:\n  max-envs-per-user: two", "2:22: max-envs-per-user: expected a number, as in `0`, but found text \"two\""},
		{"cap that is true", "defaults:\n  max-devices-per-user: true", "2:25: max-devices-per-user: true does not say how; write 2, or false for none"},
		{
			"memory", "defaults:\n  max-memory-per-user: lots",
			`2:24: "lots" is not an amount of memory: write a whole number with a unit of b, k, m, g, ki, mi or gi, such as 4g, or false for no cap`,
		},
		{"negative memory", "defaults:\n  max-memory-per-user: -4g", `2:24: "-4g" is not an amount of memory`},
		{"a rule as text", "defaults:\n  env-memory: on", "2:15: env-memory: expected true or false, as in `true`, but found text \"on\""},
		{"idle without a time", "defaults:\n  idle: {below: 5%}", "2:10: idle: the time is missing; write it as {after: 2h}"},
		{"idle that is true", "defaults:\n  idle: true", "2:9: idle: true does not say how; write {after: 2h, below: 5%}, or false for none"},
		{"idle too short", "defaults:\n  idle: {after: 10s}", "2:17: after: 10s is not from 1m to 365d"},
		{"idle as a number", "defaults:\n  idle: {after: 10}", "2:17: after: 10 is not from 1m to 365d"},
		{"percentage", "defaults:\n  idle: {after: 2h, below: 101%}", `2:28: "101%" is not a percentage; write it as 5%`},
		{"percentage", "defaults:\n  idle: {after: 2h, below: -1}", `2:28: "-1" is not a percentage; write it as 5%`},
		{"duration", "defaults:\n  max-duration: 400d", "2:17: max-duration: 400d is not from 1m to 365d"},
		{"grace", "defaults:\n  grace: 11m", "2:10: grace: 11m is not from 1s to 10m"},
		{"warn both", "defaults:\n  warn: {cycles: 3, for: 10m}", "2:10: warn: write one of {cycles: 3} and {for: 10m}, or false to act at once"},
		{"warn neither", "defaults:\n  warn: {}", "2:9: warn: write one of {cycles: 3} and {for: 10m}, or false to act at once"},
		{"warn that is true", "defaults:\n  warn: true", "2:9: warn: true does not say how; write {for: 10m}, or false for none"},
		{"warn of a list", "defaults:\n  warn: [10m]", "2:9: warn: expected text, as in `10s`, but found a list"},
		{"warn too short", "defaults:\n  warn: 10ms", "2:9: warn: 10ms is not from 1s to 365d"},
		{"warn of rules, misspelt", "defaults:\n  warn: {for: 10m, rule: {env-memory: 1h}}", `2:20: unknown key "rule"; did you mean "rules"?`},
		{"warn of an unknown rule", "defaults:\n  warn: {rules: {env-device: 1h}}", `2:18: unknown key "env-device"; did you mean "env-devices"?`},
		{
			"warn of no rule", "defaults:\n  warn: {rules: {grace: 1h}}",
			`2:18: unknown key "grace"; use one of caps, env-devices, env-memory, max-devices-per-user, max-duration, ` +
				`max-envs-per-user, max-memory-per-user, max-process-age, non-env-processes, reservations, unreadable-processes`,
		},
		{"warn of idle", "defaults:\n  warn: {rules: {idle: 1h}}", "2:24: the warning of idle is part of it: write idle: {after: 1h, warn: 1h}"},
		{"warn of a rule, true", "defaults:\n  warn: {rules: {env-memory: true}}", "2:30: warn: true does not say how; write {for: 10m}, or false for none"},
		{"warn of a rule, both", "defaults:\n  warn: {rules: {env-memory: {cycles: 3, for: 10m}}}", "2:31: warn: write one of {cycles: 3} and {for: 10m}"},
		{
			"warn of a rule of rules", "defaults:\n  warn: {rules: {env-memory: {rules: {env-devices: 1h}}}}",
			"2:39: the warning of a rule has no rules: remove them",
		},
		{"warn of rules, as a list", "defaults:\n  warn: {rules: [env-memory]}", "2:17: rules: expected a mapping, as in `key: value`, but found a list"},
		{"warn of idle, true", "defaults:\n  idle: {after: 1h, warn: true}", "2:27: warn: true does not say how"},
		{"warn of no cycles", "defaults:\n  warn: {cycles: 0}", "2:18: cycles: 0 is not a whole number from 1 to 1000000"},
	})
}

func TestRefusedOverrides(t *testing.T) {
	const (
		users = "overrides:\n  - users: [bob]\n    set:\n      "
		hosts = "overrides:\n  - hosts: [a]\n    set:\n      "
	)
	refused(t, []bad{
		{
			"a cap by host", hosts + "max-devices-per-user: 1",
			"4:29: max-devices-per-user counts on all hosts together and cannot differ by host; select users, or move it to `defaults:`",
		},
		{
			"a cap by label", "overrides:\n  - labels: {a: b}\n    users: [bob]\n    set: {max-envs-per-user: 1}",
			"max-envs-per-user counts on all hosts together and cannot differ by host",
		},
		{
			"a cap's warning by host", hosts + "warn: {rules: {max-devices-per-user: 1h}}",
			"4:44: max-devices-per-user counts on all hosts together and cannot differ by host; select users, or move it to `defaults:`",
		},
		{"a rule by user", users + "env-memory: false", "4:19: env-memory cannot differ by user; select hosts, or put the users under `exempt:`"},
		{"grace by user", users + "grace: 1s", "4:14: grace cannot differ by user; select hosts, or put the users under `exempt:`"},
		{"a label with a list", "overrides:\n  - labels: {rack: [a]}\n    set: {env-memory: false}", "2:20: rack: expected text"},
		{
			"without selectors", "overrides:\n  - set: {env-memory: false}",
			"2:5: the override applies to all users and hosts at all times; name hosts, labels, users or when, or move it to `defaults:`",
		},
		{"sets nothing", "overrides:\n  - users: [bob]", "2:5: the override sets nothing; add `set:` with the settings that differ"},
		{
			"settings outside set", "overrides:\n  - users: [bob]\n    max-devices-per-user: 3",
			`3:5: unknown key "max-devices-per-user"; use one of hosts, labels, set, users, when`,
		},
		{"a mapping of overrides", "overrides:\n  bob: {}", "2:3: overrides: expected a list, as in `- item`, but found a mapping"},
		{"a share without its sign", "caps:\n  - gpus: \"50\"", "2:11: \"50\" is text: write 50 for a number, or 50% for a share"},
		{"a time as a rule with keys", "defaults:\n  idle: 2h", "2:9: idle: expected a mapping, as in `idle: {after: 2h, below: 5%}`, but found text \"2h\""},
		{"without a user", "overrides:\n  - hosts: [a]\n    users: []\n    set: {idle: false}", "3:12: users: name users or groups; leave it out for everybody"},
		{"on no host", "overrides:\n  - users: [bob]\n    hosts: []\n    set: {idle: false}", "3:12: hosts: name hosts; leave it out for all"},
		{
			"a Unix group", "overrides:\n  - users: [\"%chem\"]\n    set: {idle: false}",
			`2:13: "%chem": Unix groups are for caps and reservations alone; write one name, or "@group"`,
		},
		{"everybody", "overrides:\n  - users: [\"*\"]\n    set: {idle: false}", `2:13: "*" is not a user name; write one name, or "@group"`},
		{"everybody but", "groups: {g: [\"!bob\"]}", `1:14: "!bob" is not a user name; write one name, or "@group"`},
		{"text as override", "overrides:\n  - bob", "2:5: expected a mapping, as in `key: value`, but found text \"bob\""},
		{
			"unknown group", "overrides:\n  - users: [\"@stundets\"]\n    set: {idle: false}\ngroups:\n  students: [a]",
			"2:13: @stundets: no such group in `groups:`; did you mean \"students\"?",
		},
		{"no groups", "overrides:\n  - users: [\"@x\"]\n    set: {idle: false}", "2:13: @x: no such group in `groups:`; add it there"},
		{"two users in one word", "overrides:\n  - users: [\"a, b\"]\n    set: {idle: false}", `2:13: "a, b" is not a user name; write one name, or "@group"`},
		{"bad host pattern", "overrides:\n  - hosts: [\"gpu[3-1]\"]\n    set: {idle: false}", `2:13: "gpu[3-1]": the range 3-1 is reversed; write 1-3`},
		{"a host group", "overrides:\n  - hosts: [\"@lab\"]\n    set: {idle: false}", `2:13: "@lab": '@' is not allowed in a host name`},
		{"a circle of groups", "groups:\n  a: [\"@b\"]\n  b: [\"@a\"]", "3:7: group a contains itself: a > b > a; remove one of these"},
		{"a group in a group", "groups:\n  a: [\"@c\"]", "2:7: @c: no such group in `groups:`; add it there"},
	})
}

func TestRefusedSchedules(t *testing.T) {
	const schedules = "timezone: UTC\nschedules:\n  s:\n    - "
	refused(t, []bad{
		{"unknown zone", "timezone: Europe/Berlim", `1:11: timezone: "Europe/Berlim" is not known; write a name as Europe/Berlin, Asia/Jerusalem or UTC`},
		{"this machine's zone", "timezone: Local", `1:11: timezone: "Local" is not known`},
		{
			"unknown schedule", "timezone: UTC\nschedules:\n  office: [{hours: 8-18}]\noverrides:\n  - when: ofice\n    set: {idle: false}",
			`5:11: when: unknown value "ofice"; did you mean "office"?`,
		},
		{"no schedules", "overrides:\n  - when: office\n    set: {idle: false}", "2:11: when: there are no schedules in the file; add some under `schedules:`"},
		{"no hours", "timezone: UTC\nschedules:\n  s: []", "3:6: the schedule has no hours; write them as {days: mon-fri, hours: 8-18}"},
		{"full names", schedules + "{days: monday}", `4:14: days: "monday" is not known; write them as mon-fri, with mon, tue, wed, thu, fri, sat, sun`},
		{
			"hours backwards are nights, equal ones an error", schedules + "{hours: 8-8}",
			`4:15: hours: "8-8" ends when it begins; leave them out for the whole day`,
		},
		{"hour 25", schedules + "{hours: 8-25}", `4:15: hours: "8-25" is not a range of hours; write them as 8-18 or 08:00-18:30`},
		{"minute 60", schedules + `{hours: "8:00-9:60"}`, `4:15: hours: "8:00-9:60" is not a range of hours; write them as 8-18 or 08:00-18:30`},
		{"from midnight's end", schedules + "{hours: 24-3}", `4:15: hours: "24-3" is not a range of hours`},
		{"one hour", schedules + "{hours: \"8\"}", `4:15: hours: "8" is not a range of hours`},
		{
			"twice in a schedule", schedules + "{days: mon-fri, hours: 8-18}\n    - {days: wed, hours: 12-20}",
			"5:8: wed 12:00 is in the schedule twice; write hours that do not overlap",
		},
		{"twice over midnight", schedules + "{days: sun, hours: 22-6}\n    - {days: mon, hours: 5-7}", "5:8: mon 05:00 is in the schedule twice"},
		{"a day twice", schedules + "{days: [mon, mon]}", "4:8: mon 00:00 is in the schedule twice"},
	})
}

func TestRefusedFleetSettings(t *testing.T) {
	refused(t, []bad{
		{"a limit over all", "limits: {max-detachments: 1000001}", "1:27: max-detachments: 1000001 is not a whole number from 0 to 1000000"},
		{"a negative limit", "limits: {max-terminations: -1}", "1:28: max-terminations: -1 is not a whole number from 0 to 1000000"},
		{"unreachable", "unreachable: holt", `1:14: unreachable: unknown value "holt"; did you mean "hold"?`},
		{"tell-users", "tell-users: maybe", "1:13: tell-users: expected true or false"},
	})
}

func TestRefusedExemptions(t *testing.T) {
	refused(t, []bad{
		{"uid", "exempt: {uids: [-1]}", "1:17: -1 is not a whole number from 0 to 4294967294"},
		{"uid as name", "exempt: {uids: [root]}", "1:17: expected a number, as in `0`, but found text \"root\""},
		{
			"a daemon that is not protected", "unprotected: [nvidia-cuda-mps-sever]",
			`1:15: unknown value "nvidia-cuda-mps-sever"; did you mean "nvidia-cuda-mps-server"?`,
		},
		{"no time to end", "defaults: {grace: 0s}", "1:19: grace: 0s is not from 1s to 10m"},
		{"unknown exemption", "exempt: {user: [root]}", `1:10: unknown key "user"; did you mean "users"?`},
		{"exempt group", "exempt: {users: [\"@x\"]}", "1:18: @x: no such group in `groups:`; add it there"},
		{
			"environment by name alone", "exempt: {environments: [{name: llm}]}",
			"1:26: an environment is identified by {user: bob, name: train}; any user may choose a name",
		},
		{"environment by id alone", "exempt: {environments: [{eid: 4711}]}", "an environment is identified by {user: bob, name: train}"},
		{"environment by both", "exempt: {environments: [{eid: 4711, host: a, user: bob}]}", "an environment is identified by {user: bob, name: train}"},
		{"process without name", "exempt: {processes: [{user: root}]}", "1:23: the name of the process is missing; add `name:`"},
		{"device", "exempt: {devices: [gpu-01]}", `1:20: "gpu-01" is not a GPU; write it as gpu-01:0, gpu-[01-04]:[0-3], or by its UUID, GPU-…`},
		{"device index", "exempt: {devices: [\"gpu-01:x\"]}", `1:20: "x" is not a GPU index; write a number, as in gpu-01:0`},
		{"device without index", "exempt: {devices: [\"gpu-01:\"]}", "1:20: there is something missing; write it as gpu-01, or gpu-01:0 for a GPU"},
		{"exempt host", "exempt: {hosts: [\"a b\"]}", `1:18: "a b": ' ' is not allowed in a host name`},
	})
}

func TestRefusedHooks(t *testing.T) {
	refused(t, []bad{
		{"hook without a way", "hooks:\n  - timeout: 5s", "2:5: a hook is one of command, webhook and slack"},
		{"hook with both", "hooks:\n  - command: [/bin/x]\n    webhook: https://x", "2:5: a hook is one of command, webhook and slack"},
		{"chat without a host", "hooks:\n  - slack: general", `2:12: "general" is not a web address`},
		{"a shell line", "hooks:\n  - command: notify me", "2:14: command: expected a list, as in `- item`, but found text \"notify me\""},
		{
			"a program by search", "hooks:\n  - command: [notify]",
			"2:14: the command begins with the full path of a program, as in [/usr/local/bin/notify, --quiet]",
		},
		{"no program", "hooks:\n  - command: []", "2:14: the command begins with the full path of a program"},
		{
			"a file as web address", "hooks:\n  - webhook: file:///etc/passwd",
			`2:14: "file:///etc/passwd" is not a web address; write it as https://chat.example.org/hooks/1`,
		},
		{"a web address without host", "hooks:\n  - webhook: https:///x", `2:14: "https:///x" is not a web address`},
		{"a hook that may hang", "hooks:\n  - command: [/bin/x]\n    timeout: 2h", "3:14: timeout: 2h is not from 100ms to 1m"},
		{"tries without end", "hooks:\n  - command: [/bin/x]\n    retries: 100", "3:14: retries: 100 is not a whole number from 0 to 10"},
		{"unknown event", "hooks:\n  - command: [/bin/x]\n    events: [warned]", `3:14: unknown value "warned"; did you mean "warn"?`},
	})
}

func TestOverlappingSchedules(t *testing.T) {
	const head = "timezone: UTC\nschedules: {xmas: [{from: 2026-12-24, to: 2026-12-26}], sat: [{days: sat, hours: 9-10}], " +
		"tue: [{days: tue, hours: 9-10}], eve: [{hours: 22-6, from: 2026-12-23, to: 2026-12-23}], " +
		"day: [{days: mon-fri, hours: 8-18}], noon: [{days: wed, hours: 12-13}],\n" +
		"  night: [{days: mon-fri, hours: 18-8}], year: [{from: 2027-01-01}]}\n\n\ngroups: {g: [ann, bob], h: [bob, eve], i: [eve]}\noverrides:\n"
	override := func(selects, when, set string) string {
		return "  - {" + selects + ", when: " + when + ", set: {" + set + "}}\n"
	}
	tests := []struct {
		name, a, b string
		overlap    bool
	}{
		{"the same hosts", override("hosts: [a]", "day", "idle: false"), override("hosts: [a]", "noon", "idle: {after: 1h}"), true},
		{"the same schedule", override("hosts: [a]", "day", "idle: false"), override("hosts: [a]", "day", "idle: {after: 1h}"), true},
		{"all users", "  - {when: day, set: {idle: false}}\n", "  - {when: noon, set: {idle: false}}\n", true},
		{"hosts in common", override(`hosts: ["a[1-3]"]`, "day", "kill: true"), override(`hosts: ["a[3-5]"]`, "noon", "kill: false"), true},
		{"the same labels", override("labels: {a: b}", "day", "kill: true"), override("labels: {a: b}", "noon", "kill: false"), true},
		{"a user in both", override("users: [bob]", "day", "idle: false"), override("users: [eve, bob]", "noon", "idle: {after: 1h}"), true},
		{"a user in both groups", override(`users: ["@g"]`, "day", "max-envs-per-user: 1"), override(`users: ["@h"]`, "noon", "max-envs-per-user: 2"), true},

		{"other hours", override("hosts: [a]", "day", "idle: false"), override("hosts: [a]", "night", "idle: {after: 1h}"), false},
		{"other hosts", override("hosts: [a]", "day", "idle: false"), override("hosts: [b]", "noon", "idle: {after: 1h}"), false},
		{"other settings", override("hosts: [a]", "day", "idle: false"), override("hosts: [a]", "noon", "kill: true"), false},
		{"other users", override(`users: ["@g"]`, "day", "idle: false"), override(`users: ["@i"]`, "noon", "idle: {after: 1h}"), false},
		{"a name over a group", override(`users: ["@g"]`, "day", "idle: false"), override("users: [bob]", "noon", "idle: {after: 1h}"), false},
		{"a name over a pattern", override(`hosts: ["a[1-3]"]`, "day", "idle: false"), override("hosts: [a2]", "noon", "idle: {after: 1h}"), false},
		{"hosts over none", "  - {when: day, set: {idle: false}}\n", override("hosts: [a]", "noon", "idle: {after: 1h}"), false},
		{"more labels", override("labels: {a: b}", "day", "idle: false"), override("labels: {a: b, c: d}", "noon", "idle: {after: 1h}"), false},
		{"a day of some dates", override("hosts: [a]", "xmas", "idle: false"), override("hosts: [a]", "sat", "idle: false"), true},
		{"no day of some dates", override("hosts: [a]", "xmas", "idle: false"), override("hosts: [a]", "tue", "idle: false"), false},
		{"a night before some dates", override("hosts: [a]", "xmas", "idle: false"), override("hosts: [a]", "eve", "idle: false"), true},
		{"other dates", override("hosts: [a]", "xmas", "idle: false"), override("hosts: [a]", "year", "idle: false"), false},
		{"dates without an end", override("hosts: [a]", "tue", "idle: false"), override("hosts: [a]", "year", "idle: false"), true},
		{"one without a schedule", override("hosts: [a]", "day", "idle: false"), "  - {hosts: [a], set: {idle: {after: 1h}}}\n", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := policy.Parse("p.yaml", []byte(head+test.a+test.b))
			if !test.overlap {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "p.yaml:9:")
			require.ErrorContains(t, err, "at p.yaml:8:")
			require.ErrorContains(t, err, "for the same hosts and users; write hours that do not overlap")
		})
	}
	_, err := policy.Parse("p.yaml", []byte(head+tests[0].a+tests[0].b))
	require.ErrorContains(t, err, "p.yaml:9:6: on wed 12:00 both schedule noon here and schedule day at p.yaml:8:6 set idle for the same hosts "+
		"and users; write hours that do not overlap")
}

func TestCheckReportsAllProblems(t *testing.T) {
	err := policy.Check("p.yaml", []byte("defaults: {env-memory: 1}\nunreachable: x\n"))
	require.Equal(t, 2, len(strings.Split(err.Error(), "\n")), err)
	err = policy.Check("p.yaml", []byte(`unreachable: x
schedules: {s: []}
caps:
  - {gpus: 1, users: ["@none"]}
  - {environments: -1, every: week, of: {model: A100}}
  - {gpu-hours: 1, while: {waiting: anybody}, per: host}
  - {gpus: 1, while: {}}
  - {gpus: 1, name: b, name2: c}
  - {name: a}
reservations: [{gpus: 1}]
overrides: [{set: {env-memory: true}}]
mail: {}
`))
	said := strings.Split(err.Error(), "\n")
	want := []string{
		"1:14: unreachable: unknown value", "2:16: the schedule has no hours", "4:23: @none: no such group",
		"5:6: every: it belongs", "5:6: environments: N%", "5:6: environments: they have no model",
		"6:6: gpu-hours: the period is missing", "6:6: gpu-hours: they count on all hosts", "7:22: while: write", `8:24: unknown key "name2"`,
		"9:6: a cap has exactly one of", "10:17: reservations: say who", "11:14: the override applies to all", "12:7: mail: write one",
	}
	require.Len(t, said, len(want))
	for i := range want {
		require.Contains(t, said[i], "p.yaml:"+want[i])
	}
	require.NoError(t, policy.Check("p.yaml", []byte("unreachable: hold\n")))
}

func example(t testing.TB) *policy.File {
	t.Helper()
	data := proctest.ReadFile(t, filepath.Join("..", "..", "policy.example.yaml"))
	file := proctest.Try(policy.Parse("policy.example.yaml", data)).OK(t)
	require.Empty(t, file.Ignored)
	return file
}

// FuzzParse: any bytes are a policy that can be asked, or errors of one line each with a place.
func FuzzParse(f *testing.F) {
	data := proctest.ReadFile(f, filepath.Join("..", "..", "policy.example.yaml"))
	f.Add(string(data), "gpu-01", "bob")
	f.Add("defaults: {idle: {after: 1h}}", "", "")
	f.Add("timezone: UTC\nschedules: {s: [{days: sun-mon, hours: 22-6}]}\noverrides: [{when: s, set: {kill: true}}]", "a", "b")
	f.Add("defaults: {warn: {cycles: 2, rules: {env-memory: 5, env-devices: false}}, idle: {after: 1h, warn: 1h}}", "a", "b")
	f.Add("exempt: {processes: ['*'], devices: ['a[1-2]:[0-3]']}", "a1", "u")
	f.Fuzz(func(t *testing.T, text, host, user string) {
		file, err := policy.Parse("p.yaml", []byte(text))
		if err != nil {
			require.Nil(t, file)
			require.NotContains(t, err.Error(), "\n")
			require.Error(t, policy.Check("p.yaml", []byte(text)))
			return
		}
		require.NoError(t, policy.Check("p.yaml", []byte(text)))
		ask(t, file, host, user)
	})
}
