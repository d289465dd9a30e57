package notify_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
)

// What is announced where nothing ends says what ends, and where.
func TestElsewhere(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	alice := snapshot.Environment{EID: "1", UID: 1001, Username: "alice"}
	doubtful := alice
	doubtful.OwnerMismatch = true
	owned := func(envs ...snapshot.Environment) *snapshot.Snapshot { return &snapshot.Snapshot{Environments: envs} }
	owners := notify.NewRecipients(snapshot.Cluster{Hosts: []snapshot.Host{
		{Name: "a", Snapshot: owned(alice)},
		{Name: "b", Snapshot: owned(alice)},
		{Name: "c", Snapshot: owned(doubtful)},
		{Name: "d", Snapshot: owned(snapshot.Environment{EID: "1", UID: 1002, Username: "bob"})},
		{Name: "e"},
		{Name: "f", Snapshot: owned(alice, snapshot.Environment{EID: "2", UID: 1009, Username: "Alice"})},
	}})
	account := func(user snapshot.Username) snapshot.Username {
		return snapshot.Username(strings.ToLower(string(user)))
	}
	process := func(host snapshot.Hostname) []enforce.ProcessRef { return []enforce.ProcessRef{{Host: host, PID: 5}} }
	device := func(hosts ...snapshot.Hostname) (list []enforce.DeviceRef) {
		for _, host := range hosts {
			list = append(list, enforce.DeviceRef{Host: host, Index: 3, EID: "1"})
		}
		return list
	}
	const choice = "what is too much will be taken back, idle GPUs first"
	for name, tt := range map[string]struct {
		f    enforce.Finding
		on   string // where something counts
		want []string
	}{
		"a device":     {enforce.Finding{Detach: device("a"), Pending: true}, "ab", []string{"b 1001: Unless this changes soon, " + choice + " (as things are now, GPU 3 will be detached on a; what runs there then ends, too)."}},
		"in some time": {enforce.Finding{Detach: device("a"), Pending: true, Due: now.Add(time.Hour)}, "ab", []string{"b 1001: Unless this changes, in 1h " + choice + " (as things are now, GPU 3 will be detached on a; what runs there then ends, too)."}},
		"GPU hours":    {enforce.Finding{Detach: device("a"), Pending: true, Cap: &enforce.CapExcess{Counts: "gpu-hours"}}, "ab", []string{"b 1001: Unless this changes soon, GPU 3 will be detached on a; what runs there then ends, too."}},
		"once all hosts answer": {
			enforce.Finding{Terminate: process("a"), Detach: device("c"), Pending: true, HostsMissing: 1, BlockedBy: "1 of the hosts did not answer"},
			"abc",
			[]string{"b 1001: Unless this changes, once all hosts answer, " + choice + " (as things are now, process 5 will be ended on a; GPU 3 will be detached on c; what runs there then ends, too)."},
		},
		"once a host has room for an order": {
			enforce.Finding{Detach: device("a"), Pending: true, BlockedBy: "16 orders are under way on the host"},
			"ab",
			[]string{"b 1001: Unless this changes soon, " + choice + " (as things are now, GPU 3 will be detached on a; what runs there then ends, too)."},
		},
		"a process and its device":   {enforce.Finding{Terminate: process("a"), Detach: device("a")}, "ab", []string{"b 1001: Process 5 gets SIGTERM now and GPU 3 is being detached on a."}},
		"on two hosts":               {enforce.Finding{Terminate: process("a"), Detach: device("c")}, "abc", []string{"b 1001: Process 5 gets SIGTERM now on a; GPU 3 is being detached on c."}},
		"on many hosts":              {enforce.Finding{Detach: device("a", "c", "x", "y", "z")}, "abc", []string{"b 1001: GPU 3 is being detached on a; GPU 3 is being detached on c; GPU 3 is being detached on x; and more on other hosts."}},
		"two accounts of the user":   {enforce.Finding{Detach: device("a")}, "af", []string{"f 1001: GPU 3 is being detached on a.", "f 1009: GPU 3 is being detached on a."}},
		"only where it ends":         {enforce.Finding{Detach: device("a")}, "a", nil},
		"where it ends on each":      {enforce.Finding{Detach: device("a", "b")}, "ab", nil},
		"a user who isn't sure":      {enforce.Finding{Detach: device("a")}, "ac", nil},
		"another user's environment": {enforce.Finding{Detach: device("a")}, "ad", nil},
		"a host that is silent":      {enforce.Finding{Detach: device("a")}, "ae", nil},
		"nothing ends":               {enforce.Finding{Pending: true}, "ab", nil},
		"a rule about one host":      {enforce.Finding{Terminate: process("a")}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := tt.f
			f.Rule, f.User, f.Count = enforce.RuleMaxDevicesPerUser, "alice", &enforce.CountExcess{Used: 3, Limit: 1, Hosts: len(tt.on)}
			for _, host := range tt.on {
				f.CountedOn = append(f.CountedOn, snapshot.Hostname(host))
			}
			var got []string
			for _, n := range notify.Elsewhere(&f, owners, account, now) {
				require.True(t, n.Information)
				require.Equal(t, f.Advice(owners.Environment), n.Advice)
				_, follows, _ := strings.Cut(n.Shown(), "\n")
				got = append(got, fmt.Sprintf("%s %d: %s", n.Host, n.UID, follows))
				require.Contains(t, strings.ToLower(follows), strings.ToLower(n.Follows))
			}
			require.Equal(t, tt.want, got)
			for _, n := range notify.Messages(&f, owners, now) {
				require.False(t, n.Information)
			}
		})
	}
}

// TestCommands: who is told of processes that a finding isn't about itself reads which these are.
func TestCommands(t *testing.T) {
	uid := snapshot.UID(1001)
	processes := []snapshot.Process{{PID: 5, UID: &uid, Command: "python train.py"}, {PID: 6, UID: &uid, PrivateCommand: "python x.py"}}
	owners := notify.NewRecipients(snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: &snapshot.Snapshot{Processes: processes}}}})
	for pid, want := range map[snapshot.PID]string{0: "Processes 5 (python train.py), 6 get", 5: "Processes 5, 6 get"} {
		f := &enforce.Finding{PID: pid, Terminate: []enforce.ProcessRef{{Host: "a", PID: 5}, {Host: "a", PID: 6}}}
		require.Contains(t, notify.Messages(f, owners, time.Time{})[0].Shown(), want+" SIGTERM now.")
	}
}
