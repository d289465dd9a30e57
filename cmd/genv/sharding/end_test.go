package sharding

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// A process that waits for its reports already is only waited for: a second signal would end it at once.
func TestTheEndSendsOneSignal(t *testing.T) {
	for _, c := range []struct {
		name  string
		asked bool
		ended string
	}{{"it runs", false, "signal: terminated"}, {"it was asked to end", true, "signal: killed"}} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("sleep", "600")
			require.NoError(t, cmd.Start())
			p := &process{cmd: cmd, stopping: c.asked, ended: make(chan error, 1)}
			p.ended <- nil
			(&run{processes: map[int]*process{0: p}}).end()
			p.signal(os.Kill) // after the first one
			require.EqualError(t, cmd.Wait(), c.ended)
		})
	}
}

// The end takes as long as the reports of all shards. After a while the log names those that take long.
func TestTheEndIsExplained(t *testing.T) {
	for _, c := range []struct {
		name   string
		takes  map[int]time.Duration // by shard
		logged string
	}{
		{"no shards", nil, ""},
		{"in time", map[int]time.Duration{0: time.Second, 1: 9 * time.Second}, ""},
		{"some take long", map[int]time.Duration{0: time.Hour, 1: 9 * time.Second, 3: 11 * time.Second}, `"shards":[0,3]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			gone := exec.Command("true") // signals to it are ignored
			require.NoError(t, gone.Run())
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				r := &run{Options: Options{Log: zerolog.New(&log)}, processes: make(map[int]*process)}
				for shard, takes := range c.takes {
					p := &process{shard: shard, cmd: gone, ended: make(chan error, 1)}
					time.AfterFunc(takes, func() { p.ended <- nil })
					r.processes[shard] = p
				}
				r.end()
				require.Empty(t, r.processes)
				require.Contains(t, log.String(), c.logged)
				require.Equal(t, c.logged != "", strings.Contains(log.String(), "a second signal"))
			})
		})
	}
}
