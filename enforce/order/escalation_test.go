package order_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/order"
)

// TestSteps has what a process gets, and the JSON of it, which hosts and controllers of other versions know.
func TestSteps(t *testing.T) {
	for _, row := range []struct {
		options order.Options
		json    string
		signals []string
		lasts   time.Duration
	}{
		{order.Options{}, `{"grace_ms":0,"kill":false}`, []string{"SIGTERM"}, 10 * time.Second},
		{order.Options{GraceMS: 1500}, `{"grace_ms":1500,"kill":false}`, []string{"SIGTERM"}, 1500 * time.Millisecond},
		{order.Options{GraceMS: 30_000, Kill: true}, `{"grace_ms":30000,"kill":true}`, []string{"SIGTERM", "SIGKILL"}, 40 * time.Second},
	} {
		data, err := json.Marshal(row.options)
		require.NoError(t, err)
		require.Equal(t, row.json, string(data))
		var signals []string
		for _, step := range row.options.Steps() {
			signals = append(signals, step.Signal)
			require.True(t, step.Ended.Ended() && step.Ended.IsOver() && step.Ended.Known(), step.Signal)
			require.Contains(t, order.OfProcesses(), step.Ended)
		}
		require.Equal(t, row.signals, signals)
		require.Equal(t, row.lasts, row.options.Lasts())
		require.NoError(t, row.options.Check())
	}
	for _, ms := range []int64{-1, time.Hour.Milliseconds() + 1, 1 << 62} {
		require.Error(t, (&order.Options{GraceMS: ms}).Check())
	}
}
