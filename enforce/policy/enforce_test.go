package policy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestSettingsForEnforce(t *testing.T) {
	file := parse(t, `
defaults: {non-env-processes: true, env-memory: false, max-devices-per-user: 2, max-memory-per-user: 80g, max-envs-per-user: 0,
  idle: {after: 2h, below: 5}, max-duration: 7d, warn: {cycles: 3}, grace: 30s, kill: true}
overrides:
  - users: [bob]
    set: {max-devices-per-user: false, max-memory-per-user: false, idle: false, max-duration: false, warn: false}
unreachable: hold
limits: {max-terminations: 7, max-detachments: 20}
`)
	devices, memory, envs := 2, snapshot.MustMemory("80g"), 0
	require.Equal(t, enforce.Settings{
		NonEnvProcesses: true, EnvDevices: true, MaxDevices: &devices, MaxMemory: &memory, MaxEnvs: &envs,
		Idle: &enforce.Idle{After: 2 * time.Hour, Below: 5}, MaxDuration: 168 * time.Hour, Warn: enforce.Warn{Cycles: 3},
		Grace: 30 * time.Second, Kill: true, MaxAge: time.Minute,
	}, *file.Settings(enforce.Query{User: "ann"}))
	require.Equal(t, enforce.Settings{
		NonEnvProcesses: true, EnvDevices: true, MaxEnvs: &envs, Grace: 30 * time.Second, Kill: true, MaxAge: time.Minute,
	}, *file.Settings(enforce.Query{User: "bob"}))
	require.Equal(t, enforce.Fleet{PauseCaps: true, NotifyUsers: true, Limits: safety.Limits{Fleet: safety.Limit{Terminations: 7, Detachments: 20}}}, file.Fleet())
}

func TestUnprotected(t *testing.T) {
	require.Empty(t, parse(t, "unreachable: hold").Fleet().Unprotected)
	require.Equal(t, []string{"nvidia-cuda-mps-server"}, parse(t, "unprotected: [nvidia-cuda-mps-server]").Fleet().Unprotected)
}

// capOf is a cap on devices that a flag sets.
func capOf(n int, flag string) policy.Settings {
	s := policy.Settings{Settings: enforce.Settings{MaxDevices: &n}}
	s.Set("max-devices-per-user", policy.Source{By: flag})
	return s
}

func TestFlagsTakePrecedence(t *testing.T) {
	file := parse(t, "defaults: {env-devices: true, max-devices-per-user: 4}\noverrides:\n  - {users: [bob], set: {max-devices-per-user: 3}}\n  - {hosts: [a], set: {env-devices: true}}\n")
	file.Flags = capOf(1, "--max-devices-per-user")
	file.Flags.Set("env-devices", policy.Source{By: "--no-env-devices"})
	file.UserFlags = map[snapshot.Username]policy.Settings{"eve": capOf(5, "--max-devices-for-user")}
	require.False(t, file.Settings(enforce.Query{Host: "a"}).EnvDevices)
	require.True(t, file.Settings(enforce.Query{Host: "a"}).EnvMemory, "what no flag says is left alone")
	require.Equal(t, 1, *file.Settings(enforce.Query{User: "bob"}).MaxDevices)
	require.Equal(t, 5, *file.Settings(enforce.Query{User: "eve"}).MaxDevices)
	require.Contains(t, file.Explain(enforce.Query{User: "bob"}), policy.Explanation{Key: "max-devices-per-user", Value: "1", From: "--max-devices-per-user"})
}

// What was asked before doesn't change an answer.
func TestSettingsAreThoseOfTheQueryAlone(t *testing.T) {
	read := func() *policy.File {
		file := parse(t, `
timezone: Europe/Berlin
groups: {team: [ann, bob]}
schedules: {day: [{days: mon-fri, hours: 8-18}]}
defaults: {idle: {after: 1h}, guard: watch}
overrides:
  - {hosts: [a], set: {idle: {after: 2h}, guard: enforce}}
  - {labels: {rack: b}, set: {idle: {after: 3h}}}
  - {users: ["@team"], set: {idle: {after: 4h}, max-envs-per-user: 1}}
  - {users: [bob], hosts: [a], set: {idle: {after: 5h}}}
  - {when: day, labels: {rack: b}, set: {idle: {after: 6h}, grace: 9s}}
exempt: {users: [zoe]}
`)
		file.Flags = capOf(1, "--max-devices-per-user")
		file.UserFlags = map[snapshot.Username]policy.Settings{"eve": capOf(5, "--max-devices-for-user")}
		return file
	}
	var queries []enforce.Query
	for _, host := range []snapshot.Hostname{"", "a", "b"} {
		for _, rack := range []string{"a", "b"} {
			for _, user := range []snapshot.Username{"", "ann", "bob", "eve", "eve\x00", "u", "zoe"} {
				for _, at := range []string{"2026-11-16 12:00", "2026-11-16 22:00"} {
					queries = append(queries, enforce.Query{Host: host, Labels: map[string]string{"rack": rack}, User: user, At: berlin(t, at)})
				}
			}
		}
	}
	want := make([]enforce.Settings, len(queries))
	different := make(map[string]bool)
	for i, q := range queries {
		want[i] = *read().Settings(q)
		different[fmt.Sprintf("%+v %v", want[i], want[i].Idle)] = true
	}
	require.Greater(t, len(different), 12)
	file := read()
	for range 3 {
		for _, i := range rand.Perm(len(queries)) {
			require.Equal(t, want[i], *file.Settings(queries[i]), "%+v", queries[i])
		}
	}
}

func TestExemptSubjects(t *testing.T) {
	file := parse(t, `
exempt:
  users: [carol, root]
  uids: [77]
  hosts: [free]
  devices: ["h:0", GPU-7]
  processes: [Xorg, {name: mps, user: root}]
  environments: [{user: dave, name: train}, {host: h, eid: 5}]
`)
	uid := func(n snapshot.UID) *snapshot.UID { return &n }
	carols := &snapshot.Environment{EID: "1", UID: 10, Username: "carol"}
	daves := &snapshot.Environment{EID: "2", UID: 11, Username: "dave", Config: snapshot.EnvConfig{Name: "train"}}
	process := func(owner *snapshot.UID, name string, devices ...snapshot.DeviceIndex) *snapshot.Process {
		p := &snapshot.Process{PID: 9, UID: owner, Name: name}
		for _, d := range devices {
			p.Usage = append(p.Usage, snapshot.DeviceUsage{Index: d})
		}
		return p
	}
	tests := []struct {
		name    string
		subject enforce.Subject
		want    string // the beginning of the reason; "" if nothing is exempt
	}{
		{"nothing", enforce.Subject{}, ""},
		{"a process without owner", enforce.Subject{Host: "h", Process: process(nil, "python", 1)}, ""},
		{"a host", enforce.Subject{Host: "free", Process: process(uid(1000), "python", 1)}, "host free: exempt, p.yaml:5:"},
		{"an attachment to what is said to be carol's", enforce.Subject{Host: "h", Environment: carols}, ""},
		{"a user name that could not be looked up", enforce.Subject{Host: "h", Process: &snapshot.Process{PID: 9, UID: uid(12), UserUnknown: true}}, "a user whose name could not be looked up"},
		{"one who has no name", enforce.Subject{Host: "h", Process: &snapshot.Process{PID: 9, UID: uid(12)}}, ""},
		{"carol, for her caps", enforce.Subject{User: "carol"}, "user carol"},
		{"eve, for hers", enforce.Subject{User: "eve"}, ""},
		{"a process of carol's", enforce.Subject{Host: "h", Environment: carols, Process: process(uid(10), "python", 1)}, "user carol"},
		{"a process without reported owner", enforce.Subject{Host: "h", Environment: carols, Process: process(nil, "python", 1)}, "user carol"},
		{"a process that claims to be carol's", enforce.Subject{Host: "h", Environment: carols, Process: process(uid(12), "python", 1)}, ""},
		{"an environment in forged state files", enforce.Subject{Host: "h", Environment: &snapshot.Environment{EID: "1", UID: 10, Username: "carol", OwnerMismatch: true}}, ""},
		{"root, outside of every environment", enforce.Subject{Host: "h", Process: process(uid(0), "x", 1)}, "user root"},
		{"carol, outside of every environment", enforce.Subject{Host: "h", Process: &snapshot.Process{PID: 9, UID: uid(10), Username: "carol"}}, "user carol"},
		{"another user who claims her environment", enforce.Subject{Host: "h", Environment: carols, Process: &snapshot.Process{PID: 9, UID: uid(12), Username: "eve"}}, ""},
		{"a uid", enforce.Subject{Host: "h", Process: process(uid(77), "x", 1)}, "uid 77"},
		{"a uid by its environment", enforce.Subject{Host: "h", Environment: &snapshot.Environment{EID: "3", UID: 77}}, ""},
		{"root in a container", enforce.Subject{Host: "h", Process: &snapshot.Process{PID: 9, UID: uid(0), Username: "root", Container: "0123"}}, ""},
		{"root in a container, in carol's environment", enforce.Subject{Host: "h", Environment: carols, Process: &snapshot.Process{PID: 9, UID: uid(0), Container: "0123"}}, ""},
		{"root, by the name of its program in a container", enforce.Subject{Host: "h", Process: &snapshot.Process{PID: 9, UID: uid(0), Name: "mps", Container: "0123"}}, ""},
		{"carol in a container", enforce.Subject{Host: "h", Process: &snapshot.Process{PID: 9, UID: uid(10), Username: "carol", Container: "0123"}}, "user carol"},
		{"a process's name", enforce.Subject{Host: "h", Process: process(uid(1), "Xorg", 1)}, "process Xorg"},
		{"a name that has to be root's", enforce.Subject{Host: "h", Process: process(uid(1), "mps", 1)}, ""},
		{"a named environment", enforce.Subject{Host: "h", Environment: daves}, "environment 2"},
		{"a name that is not its owner's", enforce.Subject{Host: "h", Environment: daves, Process: process(uid(12), "x", 1)}, ""},
		{"an environment by an id that was free", enforce.Subject{Host: "h", Environment: &snapshot.Environment{EID: "5", UID: 12}}, ""},
		{"a device by an index, which ExemptIndices says", enforce.Subject{Host: "h", Device: &snapshot.Device{Index: 0}}, ""},
		{"a device by UUID", enforce.Subject{Host: "g", Device: &snapshot.Device{Index: 3, UUID: "GPU-7"}}, "device"},
		{"another device", enforce.Subject{Host: "h", Device: &snapshot.Device{Index: 1}, Process: process(uid(1), "x", 0)}, ""},
		{"a process on one", enforce.Subject{Host: "h", Process: process(uid(1), "x", 0)}, ""},
		{"a process on none", enforce.Subject{Host: "h", Process: process(uid(1), "x")}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			reason, exempt := file.Exempt(test.subject)
			require.Equal(t, test.want != "", exempt, reason)
			if exempt {
				require.Regexp(t, "^"+test.want, reason)
				require.Regexp(t, `: exempt, p\.yaml:\d+:\d+$`, reason)
			} else {
				require.Empty(t, reason)
			}
		})
	}
}
