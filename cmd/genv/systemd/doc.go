// Package systemd notifies systemd of the state of this process (sd_notify(3)), if systemd has
// started it as a service of Type=notify. Otherwise its functions do nothing.
//
//	systemd.Notify(log, daemon.SdNotifyReady)
//	systemd.PingWatchdog(ctx, log, func() bool { return true })
package systemd
