package replay_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/recording/replay"
	"github.com/seed-3119e985/genv/remote/recording/simulated"
)

// tried is for how long a policy is tried.
const tried = 2 * time.Hour

const weekPolicy = `
defaults:
  non-env-processes: true
  idle: {after: 4h, below: 5%}
  max-duration: 7d
  warn: {for: 30d}
`

// TestSoakAWeek records a simulated week of 1,000 hosts with 8 GPUs each, of which each changes
// once a minute, with a cycle a minute, and tries a policy with the last two hours. Only these are
// judged in each cycle, and the others once an hour. A whole week takes a quarter of an hour:
// GENV_SOAK_WEEK=168h. Without it, the week has two hours.
func TestSoakAWeek(t *testing.T) {
	if os.Getenv("GENV_SOAK") == "" {
		t.Skip("set GENV_SOAK, as make soak does")
	}
	const hosts = 1000
	length := 2 * time.Hour
	if text := os.Getenv("GENV_SOAK_WEEK"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	dir := t.TempDir()
	begun := time.Now()
	wrote := writeWeek(t, dir, hosts, length)
	changes, size := wrote.changes, wrote.size
	files, err := recording.Files(dir)
	require.NoError(t, err)
	t.Logf("%s of %d hosts: %d changes, %d files, %.1f MB, %.1f bytes for each change", length, hosts, changes, wrote.files, float64(size)/1e6, float64(size)/float64(changes))
	t.Logf("recording took %s of %s, the rest is the simulation", wrote.took.Round(time.Millisecond), time.Since(begun).Round(time.Second))
	require.Less(t, float64(size)/length.Hours()*7*24, 1e9, "a week has to fit into 1 GB")
	since := noon.Add(max(0, length-tried))
	files = recording.During(files, since, never)
	trial := replay.New(parse(t, weekPolicy), since, never)
	begun = time.Now()
	var most uint64
	steps := 0
	summary, err := recording.Read(files, func(s *recording.Step) error {
		if steps++; steps%50 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
		}
		return trial.Step(s)
	})
	require.NoError(t, err)
	require.Empty(t, summary.Damage)
	result := trial.Result()
	require.Zero(t, result.Different)
	t.Logf("replay of %d judgements took %s, heap %d MiB; was %+v, would %+v", steps, time.Since(begun).Round(time.Second), most>>20, result.WasTotal, result.WouldTotal)
}

// written is what was recorded, and how long that took.
type written struct {
	changes, files int
	size           int64
	took           time.Duration
}

// writeWeek writes files of an hour as a Recorder does. Those of all but the last hours are removed
// again, so that a small disk is enough.
func writeWeek(t *testing.T, dir string, hosts int, length time.Duration) (all written) {
	const cycle = time.Minute
	fleet := simulated.New(1, hosts, 8, noon)
	file := parse(t, weekPolicy)
	as := recording.PolicyOf(file)
	var memory enforce.Memory
	var out *os.File
	var w *recording.Writer
	finish := func(now time.Time) {
		if w == nil {
			return
		}
		require.NoError(t, w.Close())
		require.NoError(t, out.Close())
		all.files++
		all.size += w.Size()
		if noon.Add(length).Sub(now) > tried+time.Hour {
			require.NoError(t, os.Remove(out.Name()))
		}
	}
	for i := range int(length / cycle) {
		now := noon.Add(time.Duration(i) * cycle)
		n := hosts * (i + 1)
		fleet.Change(now, n-all.changes)
		all.changes = n
		in := recording.Input{Before: memory, Judgement: recording.Judgement{Run: "run", Number: i + 1, Time: now, Policy: as, Cluster: fleet.Cluster()}}
		in.After = memory
		if i%60 == 0 || noon.Add(length).Sub(now) <= tried+time.Hour { // the others would take hours, and add nothing
			plan, after, events := enforce.Judge(file, in.Cluster, memory, now)
			in.After, in.Digest = after, recording.DigestOf(&plan, events)
			memory = after
		}
		begun := time.Now()
		if i%60 == 0 {
			finish(now)
			var err error
			out, err = os.Create(filepath.Join(dir, recording.FileName(now)))
			require.NoError(t, err)
			w = recording.NewWriter(out, recording.Header{Every: cycle})
		}
		require.NoError(t, w.Add(&in))
		require.NoError(t, w.Flush())
		all.took += time.Since(begun)
	}
	finish(noon.Add(length))
	return all
}
