package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot"
)

// The hours of a cap are in the memory of the controller, also if that is too old to be continued.
func TestCapReport(t *testing.T) {
	dir := t.TempDir()
	monday := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	noon := monday.AddDate(0, 0, 2).Add(12 * time.Hour)
	seconds := map[snapshot.Username]float64{"alice": 3600, "bob": 7200.9, "carol": 60}
	memory := controller.FleetMemory{Rules: enforce.Memory{Time: noon, Hours: map[string]enforce.Hours{
		"week": {Period: monday, Seconds: seconds}, "lab": {Period: monday, Seconds: seconds}, "month": {Period: monday.AddDate(0, -1, 0), Seconds: seconds},
	}}}
	store, err := statedir.Open(dir)
	require.NoError(t, err)
	saved, err := memory.Encode(noon)
	require.NoError(t, err)
	require.NoError(t, store.Save(t.Context(), saved))
	require.NoError(t, store.Close())
	file := filepath.Join(dir, "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`timezone: UTC
caps:
  - {name: week, gpu-hours: {"*": 20, alice: 2.5}, every: week}
  - {name: lab, gpu-hours: 100, every: week, users: [alice, bob], together: true}
  - {name: month, gpu-hours: 9, every: month}
  - {name: two, gpus: 2}
`), 0o600))
	var out, errs bytes.Buffer
	report := func(name, format string, at time.Time) string {
		out.Reset()
		errs.Reset()
		p := &options{
			Program: command.Program{Out: &out, Err: &errs, Now: func() time.Time { return at }}, stateDir: dir, policy: file, cap: name,
			output: render.Output{Format: format},
		}
		if err := p.capReport(t.Context()); err != nil {
			return err.Error()
		}
		return out.String() + errs.String()
	}
	require.Equal(t, "USER,HOURS,LIMIT,UNTIL\nbob,2.0,20.0,2026-11-30 00:00\nalice,1.0,2.5,2026-11-30 00:00\ncarol,0.0,20.0,2026-11-30 00:00\n", report("week", "csv", noon))
	require.Contains(t, report("lab", "csv", noon), "Together: 3.0 of 100.0 GPU hours until 2026-11-30 00:00.\n")
	require.Contains(t, report("week", "csv", monday.AddDate(0, 0, 6)), "bob,2.0,", "it is not too old for this")
	require.Contains(t, report("week", "csv", monday.AddDate(0, 0, -1)), "bob,2.0,20.0,2026-11-30", "the clock was set back")
	require.Equal(t, "USER,HOURS,LIMIT,UNTIL\n", report("month", "csv", noon), "a period is over")
	for _, name := range []string{"weak", "two"} {
		require.Contains(t, report(name, "csv", noon), `--cap: the policy has no cap of GPU hours "`+name)
	}
	var d CapDocument
	require.NoError(t, json.Unmarshal([]byte(report("lab", "json", noon)), &d))
	require.Equal(t, noon, d.Counted)
	require.Equal(t, []int64{100 * 3600, 10800}, []int64{*d.Limit, *d.Total})
	require.Equal(t, []CapUsage{{User: "bob", Seconds: 7200}, {User: "alice", Seconds: 3600}, {User: "carol", Seconds: 60}}, d.Rows)
	require.NoError(t, os.Remove(filepath.Join(dir, statedir.MemoryName)))
	require.Contains(t, report("week", "csv", noon), "there is no memory of a controller in "+dir)
}
