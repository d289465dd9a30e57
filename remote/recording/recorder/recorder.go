package recorder

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/snapshot"
)

// Options are what a Recorder needs.
type Options struct {
	Dir      string        // is made, for its owner alone, if it is missing
	Keep     time.Duration // after which files are removed
	MaxBytes int64         // of all files together
	Version  string        // of genv
	Now      func() time.Time
	Log      zerolog.Logger
	// FileBytes is after how many bytes a file ends, and MaxWaiting how many judgements may wait to
	// be written; 0 for the defaults.
	FileBytes  int64
	MaxWaiting int
}

const (
	defaultFileBytes  = 64 << 20
	defaultMaxWaiting = 64
	// fileTime is how long a file is written to.
	fileTime = time.Hour
	// flushEvery is the time between two writes, if judgements are more frequent.
	flushEvery = time.Minute
	// flushBytes is after how many bytes something is written earlier.
	flushBytes = 1 << 20
	// maxClockStep is by how much the clock may be set without a new file.
	maxClockStep = 100 * time.Millisecond
)

// Recorder is a controller.Witness. It is safe for concurrent use.
type Recorder struct {
	options Options
	inputs  chan *recording.Input
	ended   chan struct{}

	mu       sync.Mutex
	policy   *recording.Policy
	interval time.Duration
	missed   recording.Gap // what there was no room for
}

// Start begins to record. Call Close at the end.
func Start(options Options) *Recorder {
	if options.FileBytes == 0 {
		options.FileBytes = defaultFileBytes
	}
	options.FileBytes = min(options.FileBytes, options.MaxBytes/8)
	if options.MaxWaiting == 0 {
		options.MaxWaiting = defaultMaxWaiting
	}
	r := &Recorder{options: options, inputs: make(chan *recording.Input, options.MaxWaiting), ended: make(chan struct{})}
	go (&writer{Recorder: r}).run()
	return r
}

// Use sets the policy by which is judged from now on, and the time between two full cycles.
func (r *Recorder) Use(policy *recording.Policy, interval time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.policy, r.interval = policy, interval
}

// Judged implements controller.Witness.
func (r *Recorder) Judged(j *controller.Judged) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := &recording.Input{Before: j.Before, After: j.After, Plan: &j.Plan, Events: j.Events, Judgement: recording.Judgement{
		Run: j.Run, Number: j.Number, Early: j.Early, Time: j.Now, DryRun: j.DryRun, Policy: r.policy, Operator: j.Operator, Boosts: j.Boosts,
		Cluster: snapshot.Cluster{Hosts: j.Hosts},
	}}
	select {
	case r.inputs <- in:
	default:
		miss(&r.missed, j.Now, "the disk is too slow")
	}
}

// miss adds a judgement to a gap.
func miss(g *recording.Gap, at time.Time, because string) {
	if g.Judgements == 0 {
		*g = recording.Gap{Since: at.Round(0), Because: because}
	}
	g.Judgements++
	g.Until = at.Round(0)
}

// add adds a gap that follows.
func add(g *recording.Gap, next recording.Gap) {
	if g.Judgements == 0 {
		*g = next
		return
	}
	if next.Judgements > 0 {
		g.Judgements += next.Judgements
		g.Until = next.Until
	}
}

// takeMissed returns what there was no room for since it was called last.
func (r *Recorder) takeMissed() (g recording.Gap, interval time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, r.missed = r.missed, recording.Gap{}
	return g, r.interval
}

// closeTimeout is how long Close waits for a disk.
const closeTimeout = 15 * time.Second

// Close writes what waits, and ends. Judged must not be called any more.
func (r *Recorder) Close() {
	close(r.inputs)
	select {
	case <-r.ended:
	case <-time.After(closeTimeout):
		r.options.Log.Warn().Msg("the recording could not be written before the end: what was judged last is missing in it")
	}
}
