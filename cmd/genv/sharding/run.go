package sharding

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/cmd/genv/systemd"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/shards"
)

// Options are what a run needs.
type Options struct {
	Config
	Cluster shards.Cluster
	Key     string // of the election of all controllers
	// ID is the same after a restart, and another one for each controller; Name is for people.
	ID, Name string
	// Hosts reads which hosts there are; it is called at the start, and for each SIGHUP.
	Hosts func() ([]remote.Host, error)
	// Program and Args start the process of a shard.
	Program string
	Args    []string
	Out     io.Writer
	Prefix  bool // lines for people, with the shard in front
	// Clock never goes back, and goes on while the machine sleeps.
	Clock func() time.Duration
	Log   zerolog.Logger
}

// run is a Run.
type run struct {
	Options
	out       *output
	errors    *os.File
	placement shards.Placement
	members   *shards.Members
	with      map[int]bool // the shards that have hosts
	processes map[int]*process
	failures  map[int]*failure
	begun     map[int]bool // the shards that had a process
	replaced  map[int]bool // the shards that ended since other controllers act on their hosts
	exit      int          // the greatest exit code of the processes at the end

	joining bool   // the key of a run of this controller that ended is still in etcd
	logged  string // about etcd, last

	turned atomic.Int64 // when supervise ended a turn last, by Clock

	woken chan struct{}
	mu    sync.Mutex
	seen  *shards.Seen // nil until etcd has answered
}

// failure is what is known of a shard whose process ended by itself.
type failure struct {
	count int
	until time.Time // when the next one is started
}

// Run runs the processes of the shards that this controller has until ctx ends. Its error is why
// nothing can be run, or has the exit code of the processes.
func Run(ctx context.Context, o Options) error {
	hosts, err := o.Hosts()
	if err != nil {
		return err
	}
	r := &run{
		Options: o, out: &output{to: o.Out, prefix: o.Prefix}, errors: os.Stderr, //nolint:forbidigo // what processes log is not changed
		placement: shards.Placement{Self: o.ID, Count: o.Count}, with: o.shardsWith(hosts),
		processes: make(map[int]*process), failures: make(map[int]*failure),
		begun: make(map[int]bool), replaced: make(map[int]bool), woken: make(chan struct{}, 1),
	}
	r.members = shards.NewMembers(shards.MembersOptions{
		Cluster: o.Cluster, Key: o.Key, Self: shards.Member{ID: o.ID, Name: o.Name, Count: o.Count}, Update: r.update, Failed: r.etcdFailed,
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- r.members.Run(ctx) }()
	taking := r.supervise(ctx, cancel, result)
	cancel()
	return errors.Join(taking, exitOf(r.exit))
}

func exitOf(code int) error {
	if code == command.ExitOK {
		return nil
	}
	return &command.ExitError{Code: code}
}

func (r *run) update(seen shards.Seen) {
	r.mu.Lock()
	r.seen = &seen
	r.mu.Unlock()
	r.wake()
}

// etcdFailed logs that etcd fails, or answers again: once, since it may fail for hours.
func (r *run) etcdFailed(err error) {
	level, text := zerolog.WarnLevel, "etcd doesn't answer: the shards stay as they are"
	switch {
	case errors.Is(err, shards.ErrTaken):
		r.joining, text = true, "this controller joins when the key of its earlier run has expired, within a few seconds"
	case etcd.Refused(err):
		text = "etcd refuses what this controller asks: the shards stay as they are"
	case err == nil && r.joining:
		r.joining, level, text = false, zerolog.InfoLevel, "this controller has joined the others"
	case err == nil:
		level, text = zerolog.InfoLevel, "etcd answers again"
	}
	if text != r.logged {
		log := r.Log.Level(zerolog.InfoLevel)
		log.WithLevel(level).Err(err).Msg(text)
	}
	r.logged = text
}

func (r *run) wake() {
	select {
	case r.woken <- struct{}{}:
	default: // it is woken already
	}
}

// supervise starts and ends processes until ctx ends, or the controller can't take part.
func (r *run) supervise(ctx context.Context, stopMembers func(), result chan error) error {
	onTerminal := isOnTerminal()
	runtime.LockOSThread() // see start
	defer runtime.UnlockOSThread()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	systemd.Notify(r.Log, daemon.SdNotifyReady)
	var pings sync.WaitGroup
	defer pings.Wait()
	pinging, stop := context.WithCancel(ctx)
	defer stop()
	r.turned.Store(int64(r.Clock()))
	pings.Go(func() {
		systemd.PingWatchdog(pinging, r.Log, func() bool { return r.Clock()-time.Duration(r.turned.Load()) < stuckAfter })
	})
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			r.end()
			return <-result
		case err := <-result:
			r.end()
			return err
		case <-hangup:
			if onTerminal && !isOnTerminal() { // its window was closed
				r.end()
				stopMembers()
				return <-result
			}
			r.reload()
		case <-ticker.C:
		case <-r.woken:
		}
		r.forgive()
		r.collect()
		if r.allReplaced() {
			r.Log.Error().Msg("the hosts of all shards refuse this controller: it ends")
			r.end()
			stopMembers()
			return <-result
		}
		r.place()
		r.turned.Store(int64(r.Clock()))
	}
}

// pausedAfter is how long a turn of supervise takes at most, unless this process was stopped.
const pausedAfter = stuckAfter / 4

// forgive has the time in which this process was stopped not count: it heard no other one then.
func (r *run) forgive() {
	if r.Clock()-time.Duration(r.turned.Load()) < pausedAfter {
		return
	}
	for _, p := range r.processes {
		p.lastSign.Store(int64(time.Since(p.started)))
	}
}

func isOnTerminal() bool {
	return render.IsTerminal(os.Stderr) //nolint:forbidigo // the program's own terminal, not a place to write
}

// place starts and ends processes, so that those run which should.
func (r *run) place() {
	r.mu.Lock()
	seen := r.seen
	r.mu.Unlock()
	if seen == nil {
		return
	}
	wanted := make(map[int]bool)
	for _, shard := range r.placement.Decide(r.Clock(), seen) {
		wanted[shard] = r.with[shard] && !r.replaced[shard]
	}
	var ready []int
	for shard, p := range r.processes {
		switch {
		case !wanted[shard] && !p.stopping:
			p.stopping = true
			p.signal(syscall.SIGTERM)
			r.say("ends", shard, seen)
		case p.stuck():
			r.kill(p)
		case p.ready.Load() && !p.stopping:
			ready = append(ready, shard)
		}
	}
	slices.Sort(ready)
	left := slices.DeleteFunc(slices.Sorted(maps.Keys(r.replaced)), func(shard int) bool { return !r.with[shard] })
	r.members.Set(ready, left)
	for shard := range maps.Keys(wanted) {
		if f := r.failures[shard]; wanted[shard] && r.processes[shard] == nil && (f == nil || !time.Now().Before(f.until)) {
			r.begin(shard, seen)
		}
	}
	systemd.Notify(r.Log, fmt.Sprintf("STATUS=runs %d of %d shards, %d of them ready; %d controllers", len(r.processes), r.Count, len(ready), len(seen.Members)))
}

// kill kills a process that is stuck. In the kernel, such a process may stay for a while.
func (r *run) kill(p *process) {
	if !p.killed {
		r.Log.Error().Int("shard", p.shard).Msg("the process of the shard is stuck: it is killed")
	}
	p.killed = true
	p.signal(os.Kill)
}

func (r *run) begin(shard int, seen *shards.Seen) {
	p, err := r.start(shard)
	if err != nil {
		r.failed(shard, err)
		return
	}
	r.processes[shard], r.begun[shard] = p, true
	r.say("starts", shard, seen)
}

func (r *run) say(what string, shard int, seen *shards.Seen) {
	log := r.Log.Level(zerolog.InfoLevel)
	log.Info().Int("shard", shard).Int("controllers", len(seen.Members)).Msg("the process of the shard " + what)
}

// collect notes which processes have ended.
func (r *run) collect() {
	for shard, p := range r.processes {
		select {
		case err := <-p.ended:
			delete(r.processes, shard)
			if p.stopping {
				continue
			}
			if replaced(err) {
				r.lost(shard)
				continue
			}
			if time.Since(p.started) > settled {
				delete(r.failures, shard)
			}
			r.failed(shard, err)
		default:
		}
	}
}

// replaced reports whether a process ended since most of its hosts refused it.
func replaced(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == command.ExitReplaced
}

// lost has a shard stay without a process here: one that is started again would be refused again,
// or take the hosts back. The other shards go on.
func (r *run) lost(shard int) {
	r.replaced[shard] = true
	r.exit = max(r.exit, command.ExitReplaced)
	r.Log.Error().Int("shard", shard).Msg("most hosts of the shard refuse this controller, which leaves the shard alone until it is started again: end the other controller, and if they still refuse, start this one once with --take-over")
}

// allReplaced reports whether there is nothing left for this controller to do, or to stand by for.
func (r *run) allReplaced() bool {
	for shard, has := range r.with {
		if has && !r.replaced[shard] {
			return false
		}
	}
	return len(r.replaced) > 0
}

// A process that ended by itself is started again after a second, and then after twice as long
// each time, unless it ran for a while.
const (
	restartAfter = time.Second
	restartMost  = 32 * time.Second
	settled      = time.Minute
)

func (r *run) failed(shard int, err error) {
	f := r.failures[shard]
	if f == nil {
		f = new(failure)
		r.failures[shard] = f
	}
	pause := min(restartAfter<<min(f.count, 10), restartMost)
	f.count++
	f.until = time.Now().Add(pause)
	r.Log.Error().Int("shard", shard).AnErr("ended", err).Msgf("the process of the shard ended: it is started again in %s", pause)
}

// reload has all processes read hosts and policy again. Shards that have no hosts any more end.
func (r *run) reload() {
	systemd.Reloading(r.Log)
	defer systemd.Notify(r.Log, daemon.SdNotifyReady)
	hosts, err := r.Hosts()
	if err != nil {
		r.Log.Error().Err(err).Msg("reload failed: the old hosts and the old policy stay")
		return
	}
	r.with = r.shardsWith(hosts)
	for shard, p := range r.processes {
		if r.with[shard] {
			p.hangup()
		}
	}
	clear(r.failures)
}

// waitsQuietly is after how long end logs what it waits for.
const waitsQuietly = 10 * time.Second

// end asks all processes to end, and waits until they have. That may take as long as their reports:
// what bounds it is TimeoutStopSec= of systemd, or a second signal.
func (r *run) end() {
	systemd.Notify(r.Log, daemon.SdNotifyStopping)
	for _, p := range r.processes {
		p.stopping = true
		p.signal(syscall.SIGTERM)
	}
	long := time.After(waitsQuietly)
	for shard, p := range r.processes {
		var err error
		select {
		case err = <-p.ended:
		case <-long:
			r.logWaiting()
			err = <-p.ended
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			r.exit = max(r.exit, exit.ExitCode())
		}
		delete(r.processes, shard)
	}
}

func (r *run) logWaiting() {
	waiting := slices.DeleteFunc(slices.Sorted(maps.Keys(r.processes)), func(shard int) bool { return len(r.processes[shard].ended) > 0 })
	r.Log.Warn().Ints("shards", waiting).Msg("waiting for the processes of these shards, which may wait for their reports; a second signal ends this program at once")
}
