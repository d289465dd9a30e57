package enforcement

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
)

// TestOnATerminal: lines are dated and coloured on a terminal, as far as it is wanted, and
// exactly 1.4.3's in a pipe.
func TestOnATerminal(t *testing.T) {
	const line, dated = "[a] Process 7 is not running in a GPU environment (user bob) (waits for 59m)", "2026-11-20 02:14:07 "
	at := time.Date(2026, 11, 20, 2, 14, 7, 0, time.Local)
	for name, row := range map[string]struct {
		terminal   bool
		timestamps Timestamps
		environ    map[string]string
		want       string
	}{
		"a pipe":                 {false, TimestampsAuto, nil, line},
		"a dated pipe":           {false, TimestampsAlways, nil, dated + line},
		"a terminal":             {true, TimestampsAuto, nil, dated + yellow + line + plain},
		"an undated terminal":    {true, TimestampsNever, nil, yellow + line + plain},
		"NO_COLOR":               {true, TimestampsAuto, map[string]string{"NO_COLOR": "1"}, dated + line},
		"a terminal of no means": {true, TimestampsNever, map[string]string{"TERM": "dumb"}, line},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			read, write, err := os.Pipe()
			require.NoError(t, err)
			if row.terminal {
				read, write, err = pty.Open()
				require.NoError(t, err)
			}
			defer read.Close()
			p := &command.Program{Out: write, Err: &errs, Now: func() time.Time { return at }, Getenv: func(name string) string { return row.environ[name] }}
			w := newCycleWriter(p, &Setup{Config: Config{Format: "tui", Timestamps: row.timestamps}})
			w.finding(ptr(outside(7, enforce.EventNew, enforce.DecisionWait)), time.Unix(1_800_000_000, 0).Add(time.Minute))
			w.remark("Safety limit exceeded")
			require.NoError(t, w.broken)
			got := make([]byte, 1000)
			n, err := read.Read(got)
			require.NoError(t, err)
			require.Equal(t, row.want, string(bytes.TrimRight(got[:n], "\r\n")))
			require.Equal(t, dated+"Safety limit exceeded\n", errs.String(), "stderr is a log, and no terminal")
			require.NoError(t, write.Close())
		})
	}
}

func ptr[T any](v T) *T { return &v }

// A stdout that can't be written ends the run; a stderr that can't doesn't.
func TestFullDisk(t *testing.T) {
	s := newScreen(t, false)
	s.cycleWriter.out, s.cycleWriter.err = full{}, full{}
	cycle := controller.Cycle{Start: time.Unix(1, 0)}
	s.Consume(&cycle, []enforce.Event{outside(7, enforce.EventNew, enforce.DecisionWait)})
	require.ErrorIs(t, s.write(&cycle, nil), io.ErrShortWrite)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
