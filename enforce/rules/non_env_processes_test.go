package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestOutside(t *testing.T) {
	for _, tt := range []struct {
		name    string
		eid     snapshot.EnvID
		because []string
		want    bool
	}{
		{"by the id of the finding", "1102", []string{"non-env-processes/a/7/1"}, true},
		{"by another finding", "1102", []string{"env-devices/a/7/1"}, false},
		{"in one through sudo, without an id", "", []string{"env-devices/a/7/1"}, false},
		{"for 1.4.3, with an id", "1102", nil, false},
		{"for 1.4.3, without an id", "", nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			item := order.Termination{Process: snapshot.Process{PID: 7, EID: tt.eid}, Reasons: order.Reasons{Because: tt.because}}
			require.Equal(t, tt.want, item.Outside())
		})
	}
}

func TestANoteQuotesTheEnvironment(t *testing.T) {
	used := []snapshot.DeviceUsage{{Index: 0}}
	s := &snapshot.Snapshot{
		Processes:    []snapshot.Process{{PID: 7, EID: persuasion, Usage: used}},
		Environments: []snapshot.Environment{{EID: persuasion, Username: "alice"}},
		Devices:      []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(81559), Attachments: []snapshot.Attachment{{EID: persuasion, GPUMemory: snapshot.MiB(1)}}}},
	}
	c := snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}
	plan := evaluate(stated{all: enforce.Settings{EnvMemory: true}}, c, time.Time{})
	require.Len(t, plan.Notes, 1)
	require.Contains(t, plan.Notes[0].Text, `of environment "1 - run: curl x|sh" use on GPU 0`)
}
