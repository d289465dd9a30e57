package enforcement

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/controller"

	"github.com/seed-3119e985/genv/cmd/genv/render"
)

// service is a loop that runs for weeks: SIGHUP has it read its hosts and its
// policy again, and systemd, where it is the parent, is told how it does
// (sd_notify(3)).
type service struct {
	log    zerolog.Logger
	limit  time.Duration // after which a cycle counts as stuck
	hangup chan os.Signal
	stop   context.CancelFunc

	deadline atomic.Int64 // of the step that the loop is at, as time since begun
	begun    time.Time
	work     sync.WaitGroup
}

// stepSlack is how late the loop may be for its next step.
const stepSlack = time.Minute

// gcPercent has the collector of garbage run at half as much growth as usual:
// what lives here are a fleet's connections, which are many and do not change,
// and as much again in garbage would be wasted. GOGC overrules it.
const gcPercent = 50

// startService makes a schedule that of a service. reload returns the controller to
// continue with, or an error, and then nothing is changed. The context ends with
// ctx, and close gives everything back.
func startService(ctx context.Context, log zerolog.Logger, s *controller.Schedule, limit time.Duration, reload func() (*controller.Controller, error)) (_ context.Context, _ *service, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	v := &service{log: log, limit: limit, hangup: make(chan os.Signal, 1), stop: cancel, begun: time.Now()}
	if s.Interval > 0 {
		signal.Notify(v.hangup, syscall.SIGHUP)
	}
	oldPercent := -1
	if os.Getenv("GOGC") == "" {
		oldPercent = debug.SetGCPercent(gcPercent)
	}
	v.step(0)
	s.Hangup, s.Step = v.hangup, v.step
	s.Reload = v.reloader(reload)
	v.notify(daemon.SdNotifyReady)
	if interval, err := daemon.SdWatchdogEnabled(false); err != nil {
		log.Warn().Err(err).Msg("the watchdog of systemd is not served")
	} else if interval > 0 {
		v.work.Go(func() { v.notifyWatchdog(ctx, interval/2) })
	}
	v.work.Go(func() {
		<-ctx.Done()
		v.notify(daemon.SdNotifyStopping) // before the program ends, which waits for it
	})
	return ctx, v, func() {
		signal.Stop(v.hangup)
		cancel()
		v.work.Wait()
		if oldPercent > 0 {
			debug.SetGCPercent(oldPercent)
		}
	}
}

// notify tells systemd. Where there is none this does nothing.
func (v *service) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		v.log.Debug().Err(err).Msg("systemd could not be told")
	}
}

// tell is what `systemctl status` shows.
func (v *service) tell(cycle controller.Cycle) {
	v.notify(fmt.Sprintf("STATUS=cycle %d: %d of %s answered, %s, %s",
		cycle.Number, len(cycle.Cluster.Answered()), render.Plural(len(cycle.Cluster.Hosts), "host"),
		render.Plural(len(cycle.Plan.Findings), "finding"), render.Plural(len(cycle.Actions), "report")))
}

// step notes by when the loop should be at its next one.
func (v *service) step(wait time.Duration) {
	allowed := wait
	if wait == 0 {
		allowed = v.limit
	}
	v.deadline.Store(int64(time.Since(v.begun) + allowed + stepSlack))
}

// notifyWatchdog tells systemd that all is well, as long as it is.
func (v *service) notifyWatchdog(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if int64(time.Since(v.begun)) < v.deadline.Load() {
			v.notify(daemon.SdNotifyWatchdog)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// reloader does what SIGHUP asks for. The kernel sends the same signal when the
// terminal is gone; then the loop ends, as every program does.
func (v *service) reloader(reload func() (*controller.Controller, error)) func() *controller.Controller {
	onTerminal := render.IsTerminal(os.Stderr) //nolint:forbidigo // the program's own terminal, not a place to write
	return func() *controller.Controller {
		if onTerminal && !render.IsTerminal(os.Stderr) { //nolint:forbidigo // likewise
			v.stop()
			return nil
		}
		v.notify(daemon.SdNotifyReloading + "\nMONOTONIC_USEC=" + monotonicMicroseconds())
		defer v.notify(daemon.SdNotifyReady)
		next, err := reload()
		if err != nil {
			v.log.Error().Err(err).Msg("SIGHUP: what was read again is wrong: the old hosts and the old policy stay")
			return nil
		}
		return next
	}
}

// monotonicMicroseconds is the time by which systemd knows that an answer to a
// reload is not that to an earlier one (sd_notify(3)).
func monotonicMicroseconds() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "0"
	}
	return fmt.Sprint(now.Nano() / 1000)
}
