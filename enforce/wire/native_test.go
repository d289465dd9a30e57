package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/wire"
	"github.com/seed-3119e985/genv/snapshot"
)

// A host does not need the text of the findings to know who is outside.
func TestTheNativeReportSaysWhoIsOutside(t *testing.T) {
	report := enforce.Report{Terminate: []enforce.Termination{
		{Process: snapshot.Process{PID: 7, EID: "1102"}, Because: []string{"non-env-processes/a/7/1"}},
		{Process: snapshot.Process{PID: 8}, Because: []string{"env-devices/a/8/1"}},
	}}
	data, err := wire.EncodeNative(report)
	require.NoError(t, err)
	require.Contains(t, string(data), `"outside":[7]`)
	got, err := wire.DecodeNative(data)
	require.NoError(t, err)
	require.True(t, got.Terminate[0].Outside(), "although it claims an environment")
	require.False(t, got.Terminate[1].Outside(), "although it has no id")

	older := strings.Replace(string(data), `"outside":[7],`, "", 1)
	got, err = wire.DecodeNative([]byte(older))
	require.NoError(t, err)
	wire.SetReasons(got, [][]string{{"Process 7 is not running in a GPU environment (uid 1001)"}, {"Process 8 from environment 1 is using non-attached GPU(s) 0"}})
	require.True(t, got.Terminate[0].Outside(), "by the text of the finding")
	require.False(t, got.Terminate[1].Outside())
}
