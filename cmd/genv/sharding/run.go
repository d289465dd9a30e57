package sharding

import (
	"context"
	"errors"
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
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/shards"
)

// Options are what a run needs.
type Options struct {
	Config
	Cluster shards.Cluster
	Key     string // of the election of all controllers
	// ID is the same after a restart, and another one for each controller; Name is for people.
	ID, Name   string
	Registered election.Registration
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
		Cluster: o.Cluster, Key: o.Key, Self: shards.Member{ID: o.ID, Name: o.Name, Count: o.Count}, Registered: o.Registered,
		Update: r.update, Failed: r.etcdFailed,
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		err = r.members.Run(ctx)
		close(done)
	}()
	r.supervise(ctx, done)
	cancel()
	<-done
	return errors.Join(err, exitOf(r.exit))
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

// supervise starts and ends processes until ctx ends, this controller can't take part (done), or other
// controllers act on all hosts. Then it ends all processes.
func (r *run) supervise(ctx context.Context, done <-chan struct{}) {
	onTerminal := isOnTerminal()
	runtime.LockOSThread() // see start
	defer runtime.UnlockOSThread()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	systemd.Notify(r.Log, daemon.SdNotifyReady)
	defer r.pingWatchdog(ctx)()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	defer r.end()
	for {
		select {
		case <-ctx.Done():
			return
		case <-done:
			return
		case <-hangup:
			if onTerminal && !isOnTerminal() { // its window was closed
				return
			}
			r.reload()
		case <-ticker.C:
		case <-r.woken:
		}
		r.ignorePause()
		r.collect()
		if r.allReplaced() {
			r.Log.Error().Msg("the hosts of all shards refuse this controller, so it ends")
			return
		}
		r.place()
		r.turned.Store(int64(r.Clock()))
	}
}

// pingWatchdog has systemd know that supervise is not stuck, until ctx ends or stop is called.
func (r *run) pingWatchdog(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	r.turned.Store(int64(r.Clock()))
	var pings sync.WaitGroup
	pings.Go(func() {
		systemd.PingWatchdog(ctx, r.Log, func() bool { return r.Clock()-time.Duration(r.turned.Load()) < stuckAfter })
	})
	return func() {
		cancel()
		pings.Wait()
	}
}

func isOnTerminal() bool {
	return render.IsTerminal(os.Stderr) //nolint:forbidigo // the program's own terminal, not a place to write
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
		p.stop()
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
