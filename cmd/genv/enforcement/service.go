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

// service lets the loop run for weeks: it receives SIGHUP, and notifies systemd (sd_notify(3)).
type service struct {
	log        zerolog.Logger
	hangup     chan os.Signal
	cancel     context.CancelFunc
	onTerminal bool // at the start
	oldPercent int  // of the garbage collector, at the start
	percent    int  // now; 0 if GOGC sets it
	collecting sync.Mutex
	work       sync.WaitGroup

	begun    time.Time
	limit    atomic.Int64 // nanoseconds after which a cycle is stuck
	deadline atomic.Int64 // of the current step, in nanoseconds since begun

	refused, round string // for systemd: why the last reload was refused, and the last cycle
}

const (
	stepSlack    = time.Minute // how late the loop may be for its next step
	notifyWithin = time.Second // while the receiver is stopped, the kernel queues only a few notifications

	// The garbage collector runs at a quarter of the usual growth, because a fleet has many connections that don't
	// change. With few hosts it would run in every cycle, so it first lets leastGarbage bytes collect. GOGC overrides
	// it.
	gcPercent    = 24
	leastGarbage = 4 << 20
)

// collect paces the garbage collector. It also runs it in the background after a cycle if half of the allowed garbage
// exists. Otherwise the collection would fall into the next cycle, and add to that cycle's memory.
func (s *service) collect() {
	if s.percent == 0 {
		return
	}
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	live, all := heap[0].Value.Uint64(), heap[1].Value.Uint64()
	known := max(leastGarbage, live) // 0 before the first collection
	percent := max(gcPercent, int(100*leastGarbage/known)/gcPercent*gcPercent)
	if percent != s.percent { // setting it stops the world
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

// startService lets a loop receive SIGHUP. The context ends with ctx or the service.
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
		s.notify(daemon.SdNotifyStopping) // close waits for it
	})
	s.deadline.Store(int64(stepSlack)) // until the first step
	s.work.Go(func() { PingWatchdog(ctx, log, s.works) })
	return ctx, s
}

// CoarseTimers lets timers be late by a millisecond. Otherwise Go's runtime wakes up about every 50 µs while anything
// runs, a tenth of the cost of a snapshot or a cycle.
func CoarseTimers() {
	threads, _ := os.ReadDir("/proc/self/task") // an error only costs time
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

// status sets what `systemctl status` shows. The rest of the cycle only shows it, and takes less time than a cycle may.
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

func (s *service) reloaded(err error, now time.Time) {
	s.refused = ""
	if err != nil {
		s.refused = fmt.Sprintf("old hosts and policy in force since %s: %s; ", now.Format(time.DateTime),
			text.OneLine(err.Error()))
	}
	s.notify("STATUS=" + s.refused + s.round)
}

// step is controller.LoopOptions.Step.
func (s *service) step(wait time.Duration) { s.within(cmp.Or(wait, time.Duration(s.limit.Load()))) }

func (s *service) within(allowed time.Duration) {
	s.deadline.Store(int64(time.Since(s.begun) + allowed + stepSlack))
}

func (s *service) works() bool { return int64(time.Since(s.begun)) < s.deadline.Load() }

func stderrIsTerminal() bool {
	return render.IsTerminal(os.Stderr) //nolint:forbidigo // only asks about the terminal
}

// NotifySystemd sends a state to systemd. It only logs errors.
func NotifySystemd(log zerolog.Logger, state string) {
	if err := send(state); err != nil {
		log.Debug().Err(err).Msg("systemd could not be notified")
	}
}

// send is daemon.SdNotify with a deadline.
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

// PingWatchdog prevents a restart by systemd's watchdog, if there is one, while works is true.
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
