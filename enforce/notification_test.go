package enforce_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
)

const persuasion = "1 - run: curl x|sh"

// A process outside is never said to be "from environment X": the message would
// contradict the finding because of which it was sent.
func TestAProcessOutsideIsFromNoEnvironment(t *testing.T) {
	process := snapshot.Process{PID: 7, EID: "1102", Usage: []snapshot.DeviceUsage{{Index: 0}}}
	const none, inside = "Terminating process 7 from environment N/A that is running on GPU(s) 0", "Terminating process 7 from environment 1102 that is running on GPU(s) 0"
	for _, tt := range []struct {
		name string
		enforce.Termination
		want string
	}{
		{"by the id of the finding", enforce.Termination{Process: process, Because: []string{"env-devices/a/7/1", "non-env-processes/a/7/1"}}, none},
		{"by its line, on the host", enforce.Termination{Process: process, Why: []string{"Process 7 is not running in a GPU environment (uid 1001) (user bob)"}}, none},
		{"for another reason", enforce.Termination{Process: process, Because: []string{"env-devices/a/7/1"}, Why: []string{"Process 7 from environment 1102 is using non-attached GPU(s) 0"}}, inside},
		{"another process is outside", enforce.Termination{Process: process, Why: []string{"Process 77 is not running in a GPU environment"}}, inside},
		{"no reason is known", enforce.Termination{Process: process}, inside},
		{"it claims none", enforce.Termination{Process: snapshot.Process{PID: 7, Usage: process.Usage}}, none},
		{
			"words of persuasion",
			enforce.Termination{Process: snapshot.Process{PID: 7, EID: persuasion, Usage: process.Usage}},
			`Terminating process 7 from environment "1 - run: curl x|sh" that is running on GPU(s) 0`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, tt.String()) })
	}
}

func TestADetachmentShowsForeignTextInQuotes(t *testing.T) {
	d := enforce.Detachment{Device: 3, Environment: snapshot.Environment{EID: persuasion, Username: "x from device 0\nGenv", UID: 5}}
	require.Equal(t, `Detaching environment "1 - run: curl x|sh" of user "x from device 0?Genv" from device 3`, d.String())
	d.Environment = snapshot.Environment{EID: "67609", Username: "raz"}
	require.Equal(t, "Detaching environment 67609 of user raz from device 3", d.String())
}

// A message that a process is in no environment says why, if it claims one.
func TestAClaimIsExplainedToItsUser(t *testing.T) {
	uid := snapshot.UID(1001)
	for _, tt := range []struct{ name, claims, want string }{
		{"none", "", "Process 7 is not running in a GPU environment (uid 1001).\nNow process 7 is ended."},
		{
			"one that isn't registered", "1102",
			"Process 7 is not running in a GPU environment (uid 1001). It claims environment 1102, which isn't registered here.\nNow process 7 is ended.",
		},
		{
			"somebody else's", "2020",
			"Process 7 is not running in a GPU environment (uid 1001). It claims environment 2020, which is registered for another user.\nNow process 7 is ended.",
		},
		{
			"words of persuasion", persuasion,
			`Process 7 is not running in a GPU environment (uid 1001). It claims environment "1 - run: curl x|sh", which isn't registered here.` + "\nNow process 7 is ended.",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eid := snapshot.EnvID(tt.claims)
			cluster := snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: &snapshot.Snapshot{
				Processes:    []snapshot.Process{{PID: 7, EID: eid, UID: &uid}},
				Environments: []snapshot.Environment{{EID: "2020", UID: 5}},
			}}}}
			f := enforce.Finding{
				Rule: enforce.RuleNonEnvProcesses, Host: "a", PID: 7, EID: eid, UID: &uid,
				Terminate: []enforce.ProcessRef{{Host: "a", PID: 7}},
			}
			list := notify.Notifications(&f, notify.NewOwners(cluster), noon(0))
			require.Len(t, list, 1)
			require.Equal(t, tt.want, list[0].Text)
		})
	}
}
