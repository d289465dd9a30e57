package enforcement

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
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
	oldPercent int  // of the garbage collector; -1 if it wasn't changed
	work       sync.WaitGroup

	begun    time.Time
	limit    atomic.Int64 // in nanoseconds, after which a cycle counts as stuck
	deadline atomic.Int64 // of the current step, in nanoseconds since begun

	refused, cycle string // what systemd shows: why the last reload was refused, if it was, and the last cycle
}

// stepSlack is how late the loop may be for its next step.
const stepSlack = time.Minute

// gcPercent runs the garbage collector at a sixth of the usual growth: what lives here are a fleet's connections, which
// don't change, and a cycle adds little: of 10,000 hosts some 5 KB each. GOGC overrides it.
const gcPercent = 16

// startService starts a service, which receives SIGHUP if it is a loop. The context ends with ctx, or with the service.
func startService(ctx context.Context, log zerolog.Logger, isLoop bool) (context.Context, *service) {
	ctx, cancel := context.WithCancel(ctx)
	s := &service{
		log: log, hangup: make(chan os.Signal, 1), cancel: cancel, onTerminal: stderrIsTerminal(),
		oldPercent: -1, begun: time.Now(),
	}
	if isLoop {
		signal.Notify(s.hangup, syscall.SIGHUP)
	}
	if os.Getenv("GOGC") == "" {
		s.oldPercent = debug.SetGCPercent(gcPercent)
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

func (s *service) close() {
	signal.Stop(s.hangup)
	s.cancel()
	s.work.Wait()
	if s.oldPercent > 0 {
		debug.SetGCPercent(s.oldPercent)
	}
}

// notify sends a state to systemd, if there is one.
func (s *service) notify(state string) { NotifySystemd(s.log, state) }

// status is what `systemctl status` shows. What is left of the cycle, to show it, takes less time than a cycle may.
func (s *service) status(cycle *controller.Cycle) {
	s.within(0)
	hold := ""
	if cycle.Hold != nil {
		hold = cycle.Hold.String() + "; "
	}
	unable := unableHosts(cycle)
	if unable != "" {
		unable = "; " + unable
	}
	answered, hosts := cycle.Cluster.CountAnswered(), len(cycle.Cluster.Hosts)
	s.cycle = fmt.Sprintf("%scycle %d: %d of %s answered, %s, %s%s",
		hold, cycle.Number, answered, text.Plural(hosts, "host"), text.Plural(len(cycle.Plan.Findings), "finding"),
		text.Plural(len(cycle.Results), "order"), unable)
	s.notify("STATUS=" + s.refused + s.cycle)
}

// reloaded has the status say from when on hosts and policy aren't those in the files, if they were refused.
func (s *service) reloaded(err error, now time.Time) {
	s.refused = ""
	if err != nil {
		s.refused = fmt.Sprintf("old hosts and policy in force since %s: %s; ", now.Format(time.DateTime),
			text.OneLine(err.Error()))
	}
	s.notify("STATUS=" + s.refused + s.cycle)
}

// step notes by when the loop should reach its next step: see Schedule.Step.
func (s *service) step(wait time.Duration) {
	allowed := wait
	if wait == 0 {
		allowed = time.Duration(s.limit.Load())
	}
	s.within(allowed)
}

func (s *service) within(allowed time.Duration) {
	s.deadline.Store(int64(time.Since(s.begun) + allowed + stepSlack))
}

func (s *service) works() bool { return int64(time.Since(s.begun)) < s.deadline.Load() }

func stderrIsTerminal() bool {
	return render.IsTerminal(os.Stderr) //nolint:forbidigo // the program's own terminal, not a place to write
}

// notifyWithin is how long the receiver of a notification may take. While it is stopped, the kernel queues only a few.
const notifyWithin = time.Second

// NotifySystemd sends a state to systemd. What fails is only logged.
func NotifySystemd(log zerolog.Logger, state string) {
	if err := send(state); err != nil {
		log.Debug().Err(err).Msg("systemd could not be notified")
	}
}

// send is daemon.SdNotify with a limit of time.
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

// PingWatchdog keeps systemd from restarting this service until ctx ends, as long as it works. Without WatchdogSec= in
// the unit it returns at once.
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
