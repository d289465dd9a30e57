package recorder_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/recording/recorder"
	"github.com/seed-3119e985/genv/remote/recording/simulated"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// said is a log.
type said struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.String()
}

// run is a controller with a cycle every 10 s of a fleet.
type run struct {
	*recorder.Recorder
	fleet  *simulated.Fleet
	dir    string
	log    *said
	now    time.Time
	number int
	memory enforce.Memory
}

func start(t *testing.T, options recorder.Options) *run {
	r := &run{log: new(said), now: noon, fleet: simulated.New(1, 5, 4, noon)}
	if options.Dir == "" {
		options.Dir = filepath.Join(t.TempDir(), "recording")
	}
	if options.Keep == 0 {
		options.Keep, options.MaxBytes = 7*24*time.Hour, 1<<30
	}
	r.dir, options.Log = options.Dir, zerolog.New(r.log)
	r.Recorder = recorder.Start(options)
	r.Use(&recording.Policy{Digest: "abc"}, 10*time.Second)
	return r
}

func (r *run) cycles(n int) {
	for range n {
		r.number++
		r.now = r.now.Add(10 * time.Second)
		r.fleet.Change(r.now, 1)
		j := &controller.Judged{Run: "run", Number: r.number, Now: r.now, Hosts: r.fleet.Cluster().Hosts, Before: r.memory}
		j.Plan, j.After, j.Events = enforce.Judge(lenient{}, r.fleet.Cluster(), r.memory, r.now)
		r.memory = j.After
		r.Judged(j)
	}
}

// lenient is a policy without rules.
type lenient struct{}

func (lenient) Settings(enforce.Query) *enforce.Settings { return &enforce.Settings{} }
func (lenient) Exempt(enforce.Subject) (string, bool)    { return "", false }
func (lenient) Fleet() enforce.Fleet                     { return enforce.Fleet{} }

// recorded are the numbers of what was recorded, and the gaps.
func (r *run) recorded(t *testing.T) (numbers []int, gaps []recording.Gap, files []recording.File) {
	files, err := recording.Files(r.dir)
	require.NoError(t, err)
	summary, err := recording.Read(files, func(s *recording.Step) error {
		numbers, gaps = append(numbers, s.Number), append(gaps, s.Gaps...)
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, summary.Damage)
	require.Zero(t, summary.Unknown)
	return numbers, append(gaps, summary.Gaps...), files
}

func upTo(n int) (list []int) {
	for i := range n {
		list = append(list, i+1)
	}
	return list
}

// many is a queue that is longer than what a test sends at once.
const many = 10_000

func TestFilesOfAnHour(t *testing.T) {
	r := start(t, recorder.Options{MaxWaiting: many})
	r.cycles(360 * 3)
	r.Close()
	numbers, gaps, files := r.recorded(t)
	require.Equal(t, upTo(360*3), numbers)
	require.Empty(t, gaps)
	require.Len(t, files, 3)
	require.Equal(t, "2026-11-20T12-00-10.000Z.genvrec", filepath.Base(files[0].Path))
	for _, f := range files {
		info, err := os.Stat(f.Path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	info, err := os.Stat(r.dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.Empty(t, r.log.String())
	require.Len(t, recording.During(files, noon.Add(90*time.Minute), noon.Add(100*time.Minute)), 1)
	require.Len(t, recording.During(files, noon.Add(90*time.Minute), noon.Add(5*time.Hour)), 2)
	require.Empty(t, recording.During(files, noon.Add(-2*time.Hour), noon.Add(-time.Hour)))
}

// What is too old, or too much, is removed.
func TestRetention(t *testing.T) {
	r := start(t, recorder.Options{MaxWaiting: many, Keep: 119 * time.Minute, MaxBytes: 1 << 30})
	r.cycles(360 * 6)
	r.Close()
	_, _, files := r.recorded(t)
	require.Len(t, files, 3)
	small := start(t, recorder.Options{MaxWaiting: many, Keep: 24 * time.Hour, MaxBytes: 64 << 10})
	small.cycles(360 * 6)
	small.Close()
	_, _, files = small.recorded(t)
	var total int64
	for _, f := range files {
		total += f.Size
	}
	require.Less(t, total, int64(80<<10))
	require.Greater(t, total, int64(30<<10))
}

// A folder in which nothing can be written delays no cycle. It is said once, and when it is over.
func TestADiskThatFails(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "recording")
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	r := start(t, recorder.Options{Dir: dir, MaxWaiting: many})
	r.cycles(20)
	require.Eventually(t, func() bool { return strings.Contains(r.log.String(), "can't be recorded") }, 10*time.Second, time.Millisecond)
	require.NoError(t, os.Remove(dir))
	for i := 0; i < 1000 && !strings.Contains(r.log.String(), "recorded again"); i++ {
		r.cycles(1)
		time.Sleep(time.Millisecond)
	}
	r.cycles(20)
	r.Close()
	numbers, gaps, _ := r.recorded(t)
	require.Len(t, gaps, 1)
	require.Len(t, numbers, r.number-gaps[0].Judgements)
	require.Equal(t, r.number, numbers[len(numbers)-1])
	require.True(t, gaps[0].Since.Equal(noon.Add(10*time.Second)))
	require.Equal(t, 1, strings.Count(r.log.String(), "can't be recorded"))
	require.Equal(t, 1, strings.Count(r.log.String(), "recorded again"))
}

// What comes faster than it is written is left out, and noted.
func TestTooMuchWaits(t *testing.T) {
	r := start(t, recorder.Options{MaxWaiting: 1})
	r.cycles(2000)
	missing := 0
	for i := 0; i < 10_000 && !strings.Contains(r.log.String(), "behind"); i++ {
		r.cycles(1)
	}
	r.Close()
	require.Contains(t, r.log.String(), "behind")
	numbers, gaps, _ := r.recorded(t)
	for _, g := range gaps {
		missing += g.Judgements
	}
	require.Equal(t, r.number, len(numbers)+missing)
}

// After kill -9, what was written is read; the next run begins a file of its own.
func TestKilled(t *testing.T) {
	r := start(t, recorder.Options{MaxWaiting: many})
	r.cycles(50)
	r.Close()
	files, err := recording.Files(r.dir)
	require.NoError(t, err)
	info, err := os.Stat(files[0].Path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(files[0].Path, info.Size()*2/3))
	next := start(t, recorder.Options{Dir: r.dir, MaxWaiting: many})
	next.now = r.now
	next.cycles(10)
	next.Close()
	files, err = recording.Files(r.dir)
	require.NoError(t, err)
	require.Len(t, files, 2)
	steps := 0
	summary, err := recording.Read(files, func(*recording.Step) error { steps++; return nil })
	require.NoError(t, err)
	require.Len(t, summary.Damage, 1)
	require.ErrorIs(t, summary.Damage[0].Err, recording.ErrCut)
	require.Greater(t, steps, 20)
	stop := errors.New("enough")
	_, err = recording.Read(files, func(*recording.Step) error { return stop })
	require.ErrorIs(t, err, stop)
}
