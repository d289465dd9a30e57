package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// The account bob has other names; bobby is somebody else.
func parseForBob(t *testing.T, text string) *policy.File {
	file := proctest.Try(policy.ParseFor("p.yaml", []byte(text), policy.Aliases{"bobalt": "bob", `CORP\bob`: "bob"})).OK(t)
	return file
}

// outside is how many processes end of a user outside of environments.
func outside(file *policy.File, user snapshot.Username) int {
	process := snapshot.Process{PID: 5, Start: 1, UID: new(snapshot.UID(1002)), Username: user, Name: "python", Usage: []snapshot.DeviceUsage{{Index: 3}}}
	s := &snapshot.Snapshot{Devices: []snapshot.Device{{Index: 3, UUID: "GPU-1", TotalMemory: snapshot.MustMemory("80g")}}, Processes: []snapshot.Process{process}}
	plan, _, _ := rules.Judge(file, snapshot.Cluster{Hosts: []snapshot.Host{{Name: "gpu-01", Snapshot: s}}}, enforce.Memory{}, time.Now())
	ended := 0
	for _, r := range plan.Orders {
		ended += len(r.Order.Terminate)
	}
	return ended
}

func TestARuleForANameHoldsForTheAccount(t *testing.T) {
	for _, written := range []string{"bob", "bobalt", `'CORP\bob'`} {
		for _, exempt := range []string{
			"exempt: {users: [" + written + "]}", "groups: {staff: [" + written + "]}\nexempt: {users: ['@staff']}",
			"exempt: {processes: [{name: python, user: " + written + "}]}",
		} {
			file := parseForBob(t, "defaults: {non-env-processes: true}\n"+exempt)
			for _, reported := range []snapshot.Username{"bob", "bobalt", `CORP\bob`} {
				require.Zero(t, outside(file, reported), "%s, reported as %s", exempt, reported)
			}
			for _, reported := range []snapshot.Username{"bobby", "Bob", ""} {
				require.Equal(t, 1, outside(file, reported), "%s, reported as %s", exempt, reported)
			}
		}
		file := parseForBob(t, "overrides:\n- {users: ["+written+"], set: {max-devices-per-user: 4}}\ndefaults: {guard: enforce}\nexempt: {users: ["+written+"]}\n"+
			"mail: {sendmail: /bin/true, from: a@example.org, addresses: {"+written+": b@example.org}, opt-out: ["+written+"]}")
		for _, asked := range []snapshot.Username{"bob", "bobalt", `CORP\bob`} {
			require.Equal(t, 4, *file.Settings(enforce.Query{User: asked}).MaxDevices)
			explained := file.Explain(enforce.Query{User: asked})
			require.Equal(t, policy.Explanation{Key: "exempt", Value: "user bob", From: "exempt, p.yaml:4:18"}, explained[0])
			require.ErrorIs(t, proctest.Try(file.Mail.Address(asked)).Err, policy.ErrOptedOut)
			mailed := *file.Mail
			mailed.OptOut = nil
			require.Equal(t, "b@example.org", proctest.Try(mailed.Address(asked)).OK(t))
		}
		require.Nil(t, file.Settings(enforce.Query{User: "bobby"}).MaxDevices)
		require.ErrorIs(t, proctest.Try(file.Mail.Address("bobby")).Err, policy.ErrNoAddress)
		require.Equal(t, []snapshot.Username{`CORP\bob`, "bob", "bobalt"}, file.Settings(enforce.Query{Host: "gpu-01"}).Guard.ExemptUsers, "a host may know one of them alone")
	}
}

// Hosts may prefer different names of one account. A cap counts them together, and no other account.
func TestACapCountsAnAccountOnce(t *testing.T) {
	const text = "defaults: {max-devices-per-user: 2}"
	for _, test := range []struct {
		users [3]snapshot.Username
		want  int
	}{
		{[3]snapshot.Username{"bob", "bobalt", `CORP\bob`}, 1},
		{[3]snapshot.Username{"bobalt", "bobalt", "bobalt"}, 1},
		{[3]snapshot.Username{"bob", "bobalt", "bobby"}, 0},
	} {
		var cluster snapshot.Cluster
		for i, user := range test.users {
			at, _ := snapshot.ParseDate("01/11/2026 10:00:00")
			device := snapshot.Device{TotalMemory: snapshot.MustMemory("80g"), Attachments: []snapshot.Attachment{{EID: "7", Time: at}}}
			cluster.Hosts = append(cluster.Hosts, snapshot.Host{Name: snapshot.Hostname(rune('a' + i)), Snapshot: &snapshot.Snapshot{
				Devices: []snapshot.Device{device}, Environments: []snapshot.Environment{{EID: "7", UID: 1002, Username: user, Creation: at}},
			}})
		}
		plan, _, _ := rules.Judge(parseForBob(t, text), cluster, enforce.Memory{}, time.Now())
		detached := 0
		for _, r := range plan.Orders {
			detached += len(r.Order.Detach)
		}
		require.Equal(t, test.want, detached, test.users)
	}
}

// What processes use counts once for a cap, by any name of their user; one of unknown environment keeps its device
// busy.
func TestWhatAnAccountUsesCountsOnce(t *testing.T) {
	for _, reported := range []snapshot.Username{"bob", "bobalt"} {
		for _, test := range []struct {
			rules   string
			process snapshot.Process // on the GPU that was attached last
			ends    int
			detach  []snapshot.DeviceIndex
		}{
			{"max-memory-per-user: 60g", snapshot.Process{EID: "7"}, 0, nil},
			{"max-memory-per-user: 39g", snapshot.Process{EID: "7"}, 1, []snapshot.DeviceIndex{1}},
			{"max-devices-per-user: 1", snapshot.Process{EnvUnknown: true}, 0, []snapshot.DeviceIndex{0}},
		} {
			uid := snapshot.UID(1002)
			early, _ := snapshot.ParseDate("01/11/2026 10:00:00")
			late, _ := snapshot.ParseDate("01/11/2026 12:00:00")
			attached := func(index snapshot.DeviceIndex, at snapshot.Date) snapshot.Device {
				return snapshot.Device{Index: index, TotalMemory: snapshot.MustMemory("80g"), Attachments: []snapshot.Attachment{{EID: "7", Time: at, GPUMemory: snapshot.MustMemory("10g")}}}
			}
			p := test.process
			p.PID, p.Start, p.UID, p.Username = 5, 1, &uid, reported
			p.Usage = []snapshot.DeviceUsage{{Index: 1, Memory: snapshot.MustMemory("40g")}}
			s := &snapshot.Snapshot{
				Devices: []snapshot.Device{attached(0, early), attached(1, late)}, Processes: []snapshot.Process{p},
				Environments: []snapshot.Environment{{EID: "7", UID: uid, Username: reported, Creation: early}},
			}
			plan, _, _ := rules.Judge(parseForBob(t, "defaults: {env-memory: false, "+test.rules+"}"), snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}, enforce.Memory{}, time.Now())
			ends, detach := 0, []snapshot.DeviceIndex(nil)
			for _, o := range plan.Orders {
				ends += len(o.Order.Terminate)
				for _, d := range o.Order.Detach {
					detach = append(detach, d.Device)
				}
			}
			require.Equal(t, test.ends, ends, "%s, reported as %s", test.rules, reported)
			require.Equal(t, test.detach, detach, "%s, reported as %s", test.rules, reported)
		}
	}
}

func TestNamesOfDirectoriesInAPolicy(t *testing.T) {
	file := parse(t, `overrides:
- users: ['CORP\jdoe', ann@corp.example, müller, First Last, "ws$"]
  set: {max-devices-per-user: 4}
`)
	for _, user := range []snapshot.Username{`CORP\jdoe`, "ann@corp.example", "müller", "First Last", "ws$"} {
		require.Equal(t, 4, *file.Settings(enforce.Query{User: user}).MaxDevices, user)
	}
	require.Nil(t, file.Settings(enforce.Query{User: "ann"}).MaxDevices)
}
