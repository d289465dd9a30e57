package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// divide gives each device of the first host two MIG instances, MIG-0a and MIG-0b on device 0. The driver measures no
// utilization then. alice is attached to the first and bob to the second, and so are their processes.
func divide(c snapshot.Cluster) snapshot.Cluster {
	s := c.Hosts[0].Snapshot
	instance := func(index snapshot.DeviceIndex, eid snapshot.EnvID) snapshot.GPUUUID {
		return snapshot.GPUUUID("MIG-" + index.String() + map[snapshot.EnvID]string{"1": "a", "2": "b"}[eid])
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		d.Utilization, d.UsedMemory = nil, snapshot.MiB(600)
		d.Instances = []snapshot.Instance{{UUID: instance(d.Index, "1"), Profile: "1g.10gb"}, {UUID: instance(d.Index, "2"), Profile: "1g.10gb"}}
		for j := range d.Attachments {
			d.Attachments[j].Instances = []snapshot.GPUUUID{instance(d.Index, d.Attachments[j].EID)}
		}
	}
	for i := range s.Processes {
		for _, u := range s.Processes[i].Usage {
			s.Processes[i].Instances = append(s.Processes[i].Instances, instance(u.Index, s.Processes[i].EID))
		}
	}
	return c
}

// TestIdleGoesByProcessesWithMIG: an unknown utilization is no reason to act, whatever the limit is.
func TestIdleGoesByProcessesWithMIG(t *testing.T) {
	for cluster, want := range map[string]string{
		`a | env 1 alice | dev 0 1@01 | proc 5 1 0:10`:                                      "",
		`a | env 1 alice | dev 0 1@01 | proc 5 1 0:?`:                                       "",
		`a | env 1 alice | env 2 bob | dev 0 1@01 2@02 | proc 5 1 0:10 | proc 6 2 0:10`:     "",
		`a | env 1 alice | dev 0 p? 1@01`:                                                   "",
		`a | env 1 alice | dev 0 1@01`:                                                      "a detach 0 1",
		`a | env 1 alice | env 2 bob | dev 0 1@01 2@02 | proc 5 1 0:10`:                     "a detach 0 2",
		`a | env 1 alice | env 2 bob | dev 0 1@01 2@02 | dev 1 1@01 | proc 5 1 0:10 1:10`:   "a detach 0 2",
		`a | env 1 alice | env 2 bob | dev 0 1@01 2@02 | proc 5 1 0:10 | proc 6 2 0:10 1:1`: "",
	} {
		for _, below := range []int{0, 5, 100} {
			policy := stated{all: enforce.Settings{Idle: &enforce.Idle{After: time.Hour, Below: below}}}
			var memory controllerMemory
			var last string
			for minute := 0; minute <= 60; minute += 10 {
				last = planText(memory.Judge(policy, divide(parseCluster(t, cluster)), noon(minute)))
			}
			require.Equal(t, want, last, "below %d %%: %s", below, cluster)
		}
	}
}

// TestRulesWithMIG: instances of a device are judged together, as the device.
func TestRulesWithMIG(t *testing.T) {
	one, total := 1, snapshot.MustMemory("12g")
	for _, tt := range []struct {
		name     string
		settings enforce.Settings
		cluster  string
		want     string
		lines    []string
	}{
		{
			"attached to the device",
			enforce.Settings{EnvDevices: true},
			`a | env 1 alice | dev 0 1@01 | proc 5 1 0:1`, "", nil,
		},
		{
			"only the instances of the device that isn't attached are named",
			enforce.Settings{EnvDevices: true},
			`a | env 1 alice | dev 0 1@01 | dev 1 | proc 5 1 0:1 1:1`, "a end 5",
			[]string{"Process 5 from environment 1 is using non-attached GPU(s) 1 (user alice, MIG-1a)"},
		},
		{
			"outside, all are named",
			enforce.Settings{NonEnvProcesses: true},
			`a | env 2 bob | dev 0 | dev 1 | proc 5 - by:carol 0:1 1:1`, "a end 5",
			[]string{"Process 5 is not running in a GPU environment (user carol, MIG-0, MIG-1)"},
		},
		{
			"memory within the capacity",
			enforce.Settings{EnvMemory: true},
			`a | env 1 alice 10g | env 2 bob 10g | dev 0 1@01 2@02 | proc 5 1 0:6000 | proc 6 2 0:6000`, "", nil,
		},
		{
			"memory on the device over the capacity",
			enforce.Settings{EnvMemory: true},
			`a | env 1 alice 10g | env 2 bob 10g | dev 0 1@01 2@02 | proc 5 1 0:6000 | proc 7 1 0:5000 | proc 6 2 0:6000`, "a end 7",
			[]string{"Environment 1 is using 11534m on device 0 which is 1534m over its capacity of 10g (user alice, MIG-0a)"},
		},
		{
			"an instance of unknown memory is left alone",
			enforce.Settings{EnvMemory: true},
			`a | env 1 alice 10g | dev 0 1@01 | proc 5 1 0:?`, "", nil,
		},
		{
			"a device counts once for the cap",
			enforce.Settings{MaxDevices: &one},
			`a | env 1 alice | env 2 alice | dev 0 1@01 2@02 | proc 5 1 0:1 | proc 6 2 0:1`, "", nil,
		},
		{
			"two devices count twice",
			enforce.Settings{MaxDevices: &one},
			`a | env 1 alice | dev 0 1@01 | dev 1 1@02 | proc 5 1 0:1`, "a detach 1 1",
			[]string{"User alice is using 2 devices on 1 hosts which is 1 more than the maximum allowed"},
		},
		{
			"memory for the cap is that of the profiles",
			enforce.Settings{MaxMemory: &total},
			`a | env 1 alice 10g | dev 0 1@01 | proc 5 1 0:1`, "", nil,
		},
		{
			"attached for too long",
			enforce.Settings{MaxDuration: time.Minute},
			`a | env 1 alice | env 2 bob | dev 0 1@01 | proc 5 1 0:1`, "a detach 0 1",
			[]string{"(user alice, MIG-0a)"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := evaluate(stated{all: tt.settings}, divide(parseCluster(t, tt.cluster)), noon(0))
			require.Equal(t, tt.want, planText(plan))
			require.Len(t, plan.Findings, len(tt.lines))
			for i, line := range tt.lines {
				require.Contains(t, plan.Findings[i].Line(), line)
			}
		})
	}
}

// TestFindingsNameInstancesOfUnknownDevices: the list of instances may be missing.
func TestFindingsNameInstancesOfUnknownDevices(t *testing.T) {
	c := divide(parseCluster(t, `a | env 1 alice | dev 0 1@01 | dev 1 | proc 5 1 0:1 1:1`))
	c.Hosts[0].Snapshot.Devices[1].Instances = nil
	plan := evaluate(stated{all: enforce.Settings{EnvDevices: true}}, c, noon(0))
	require.Equal(t, []snapshot.GPUUUID{"MIG-1a"}, plan.Findings[0].Instances)
	c.Hosts[0].Snapshot.Devices[0].Instances = nil
	plan = evaluate(stated{all: enforce.Settings{EnvDevices: true}}, c, noon(0))
	require.Equal(t, []snapshot.GPUUUID{"MIG-0a", "MIG-1a"}, plan.Findings[0].Instances)
}
