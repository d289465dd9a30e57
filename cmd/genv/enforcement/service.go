package enforcement

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// service makes the loop one that runs for weeks: it receives SIGHUP, and notifies systemd of its state (sd_notify(3)).
type service struct {
	log        zerolog.Logger
	hangup     chan os.Signal
	cancel     context.CancelFunc
	onTerminal bool // when it was started
	oldPercent int  // of the garbage collector
	percent    int  // that was set; 0 for none
	collecting sync.Mutex
	work       sync.WaitGroup

	begun    time.Time
	limit    atomic.Int64 // in nanoseconds, after which a cycle counts as stuck
	deadline atomic.Int64 // of the current step, in nanoseconds since begun

	refused, round string // what systemd shows: why the last reload was refused, if it was, and the last cycle
}

const (
	stepSlack    = time.Minute // by which the loop may be late for its next step
	notifyWithin = time.Second // for the receiver of a notification: while it is stopped, the kernel queues only a few

	// The garbage collector runs at a quarter of the usual growth: a fleet's connections are many and don't change. With
	// few hosts it would run in every cycle, so leastGarbage bytes may collect first. GOGC overrides it.
	gcPercent    = 24
	leastGarbage = 4 << 20
)

// collect paces the garbage collector. After a cycle, it also runs it in the background if half of the garbage is there
// for which it would run by itself. That would be within the next cycle, when what that one needs is in memory, too.
func (s *service) collect() {
	if s.percent == 0 {
		return
	}
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	live, all := heap[0].Value.Uint64(), heap[1].Value.Uint64()
	known := max(leastGarbage, live) // it is 0 before the first collection
	percent := max(gcPercent, int(100*leastGarbage/known)/gcPercent*gcPercent)
	if percent != s.percent { // to set it stops the program for a moment
		debug.SetGCPercent(percent)
		s.percent = percent
	}
	if all > live+max(leastGarbage, live*gcPercent/200) && s.collecting.TryLock() {
		s.work.Go(func() {
			defer s.collecting.Unlock()
			runtime.GC()
		})
	}
}

// startService starts a service, which receives SIGHUP if it is a loop. The context ends with ctx, or with the service.
func startService(ctx context.Context, log zerolog.Logger, isLoop bool) (context.Context, *service) {
	ctx, cancel := context.WithCancel(ctx)
	s := &service{
		log: log, hangup: make(chan os.Signal, 1), cancel: cancel, onTerminal: stderrIsTerminal(),
		begun: time.Now(),
	}
	if isLoop {
		signal.Notify(s.hangup, syscall.SIGHUP)
	}
	CoarseTimers()
	if os.Getenv("GOGC") == "" {
		s.percent = gcPercent
		s.oldPercent = debug.SetGCPercent(s.percent)
	}
	s.notify(daemon.SdNotifyReady)
	s.work.Go(func() {
		<-ctx.Done()
		s.notify(daemon.SdNotifyStopping) // before the program ends, which waits for it
	})
	s.deadline.Store(int64(stepSlack)) // until the first step
	s.work.Go(func() { PingWatchdog(ctx, log, s.works) })
	return ctx, s
}

// CoarseTimers lets timers of this process be late by a millisecond. Otherwise Go's runtime wakes up every 50 µs or so
// while anything runs: a tenth of what a snapshot or a cycle takes.
func CoarseTimers() {
	threads, _ := os.ReadDir("/proc/self/task") // this only saves time
	for _, thread := range threads {
		_ = os.WriteFile(filepath.Join("/proc", thread.Name(), "timerslack_ns"), []byte("1000000"), 0)
	}
}

func (s *service) close() {
	signal.Stop(s.hangup)
	s.cancel()
	s.work.Wait()
	if s.percent > 0 {
		debug.SetGCPercent(s.oldPercent)
	}
}

func (s *service) notify(state string) { NotifySystemd(s.log, state) }

// status is what `systemctl status` shows. What is left of the cycle, to show it, takes less time than a cycle may.
func (s *service) status(round *controller.Round) {
	s.within(0)
	answered, hosts := round.Cluster.CountAnswered(), len(round.Cluster.Hosts)
	s.round = fmt.Sprintf("cycle %d: %d of %s answered, %s, %s", round.Number, answered, text.Plural(hosts, "host"),
		text.Plural(len(round.Plan.Findings), "finding"), text.Plural(len(round.Results), "order"))
	if round.Hold != nil {
		s.round = round.Hold.String() + "; " + s.round
	}
	if unable := unableHosts(round); unable != "" {
		s.round += "; " + unable
	}
	s.notify("STATUS=" + s.refused + s.round)
}

// reloaded has the status say since when hosts and policy aren't those in the files, if these were refused.
func (s *service) reloaded(err error, now time.Time) {
	s.refused = ""
	if err != nil {
		s.refused = fmt.Sprintf("old hosts and policy in force since %s: %s; ", now.Format(time.DateTime),
			text.OneLine(err.Error()))
	}
	s.notify("STATUS=" + s.refused + s.round)
}

// step notes by when the loop should reach its next step: see controller.LoopOptions.Step.
func (s *service) step(wait time.Duration) { s.within(cmp.Or(wait, time.Duration(s.limit.Load()))) }

func (s *service) within(allowed time.Duration) {
	s.deadline.Store(int64(time.Since(s.begun) + allowed + stepSlack))
}

func (s *service) works() bool { return int64(time.Since(s.begun)) < s.deadline.Load() }

func stderrIsTerminal() bool {
	return render.IsTerminal(os.Stderr) //nolint:forbidigo // the program's own terminal, not a place to write
}

// NotifySystemd sends a state to systemd. What fails is only logged.
func NotifySystemd(log zerolog.Logger, state string) {
	if err := send(state); err != nil {
		log.Debug().Err(err).Msg("systemd could not be notified")
	}
}

// send is daemon.SdNotify within notifyWithin.
func send(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyWithin)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}

// PingWatchdog keeps systemd's watchdog, if there is one, from restarting this service as long as it works.
func PingWatchdog(ctx context.Context, log zerolog.Logger, works func() bool) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn().Err(err).Msg("systemd's watchdog is not notified")
		return
	}
	if interval <= 0 {
		return
	}
	ticker := time.NewTicker(interval / 2)
	defer ticker.Stop()
	for {
		if works() {
			NotifySystemd(log, daemon.SdNotifyWatchdog)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
