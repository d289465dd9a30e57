package enforcement

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// notifyWithin is how long the receiver of a notification may take. It doesn't read any while it is
// stopped, for example with Ctrl-Z, and the kernel queues only a few.
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

// PingWatchdog keeps systemd from restarting this service until ctx ends, as long as works
// returns true. Without WatchdogSec= in the unit it returns at once.
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

// notifyReloading says that the configuration is read again. READY=1 says that this is done.
func notifyReloading(log zerolog.Logger) {
	NotifySystemd(log, daemon.SdNotifyReloading+"\nMONOTONIC_USEC="+monotonicMicroseconds())
}

// monotonicMicroseconds is the time by which systemd tells the answer to this
// reload from that to an earlier one (sd_notify(3)).
func monotonicMicroseconds() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "0"
	}
	return fmt.Sprint(now.Nano() / 1000)
}
