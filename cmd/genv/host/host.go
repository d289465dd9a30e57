package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/install/onhost"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/instances"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

func (p *hostCommands) hostCommand() *cli.Command {
	format, plan, whyNotNew := "", false, false
	return &cli.Command{
		Name: "host", Usage: "the service that owns the state of this host",
		Subcommands: []*cli.Command{
			{
				Name: "serve", Action: p.hostServe,
				Usage: "own the state of this host, and make the changes that users ask for, until SIGTERM",
			},
			{
				Name: "handover", Action: p.hostHandover,
				Usage: "give the state back to all users, after the service has been stopped",
			},
			{
				Name: "install", Hidden: true, // `genv remote install` runs it
				Usage: "install this program as a request on stdin says",
				Flags: []cli.Flag{
					command.Bool(&plan, "plan", "change nothing; report what would be done"),
					command.Bool(&whyNotNew, "why-not-new", "only print why root doesn't own the state by default"),
				},
				Action: func(c *cli.Context) error {
					h := onhost.Host{Program: "/proc/self/exe", Out: p.Out, Getenv: p.Getenv, Run: (*exec.Cmd).Run}
					if whyNotNew {
						_, err := fmt.Fprintln(p.Out, h.NotNew())
						return err
					}
					return h.Serve(c.Context, p.In, plan)
				},
			},
			p.setupDockerCommand(),
			{
				Name: "status", Usage: "say who owns the state of this host, and whether the service runs",
				Flags:  []cli.Flag{command.FormatFlag(&format, "tui", "json")},
				Action: func(c *cli.Context) error { return p.hostStatus(c, format) },
			},
		},
	}
}

// hostServe may be killed at any time: its answers are durable.
func (p *hostCommands) hostServe(c *cli.Context) error {
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := p.Logger(c)
	lock, err := p.lockService()
	if err != nil {
		return err
	}
	defer lock.Close()
	h := p.openHost()
	defer h.SMI.Keep(ctx)()
	if err := h.takeOver(ctx, log); err != nil || ctx.Err() != nil {
		return err
	}
	listener, err := p.listen()
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	beat, moves := pulse()
	backend := &changes{host: h}
	booked := backend.reservations()
	work.Go(func() {
		h.upkeep(ctx, log, beat, func() error {
			return booked.Tend(p.Now(), func() (func(*snapshot.Reservation) bool, error) {
				s, err := backend.Snapshot(ctx)
				return func(b *snapshot.Reservation) bool { return mayHold(s, b) }, err
			})
		})
	})
	work.Go(func() { enforcement.PingWatchdog(ctx, log, moves) })
	server := &service.Server{
		Backend: backend, Proc: h.Machine.Proc, Genv: p.Version, Now: p.Now, Username: system.Username,
		Lacks: h.Lacks, Run: disk.RunDir(p.Getenv), Reservations: booked,
		Failed: func(err error) { log.Warn().Err(err).Msg("a connection failed") },
	}
	enforcement.NotifySystemd(log, daemon.SdNotifyReady)
	log.Info().Str("state", h.Store.OwnedPath()).Str("socket", localhost.SocketPath(p.Getenv)).
		Msg("the service owns the state of this host")
	err = server.Serve(ctx, listener)
	enforcement.NotifySystemd(log, daemon.SdNotifyStopping)
	return err
}

func (p *hostCommands) lockService() (*os.File, error) {
	dir, err := folder.MakePublic(disk.RunDir(p.Getenv)) // it has the socket for users
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	lock, err := dir.Lock("host.lock", 0)
	if errors.Is(err, folder.ErrLocked) {
		return nil, command.UsageError("the service runs already: `genv host status` shows it; to stop it, " +
			"`systemctl stop genv-host.socket genv-host.service`")
	}
	return lock, err
}

func (p *hostCommands) listen() (*net.UnixListener, error) {
	listeners, err := activation.Listeners()
	if err != nil {
		return nil, err
	}
	for _, l := range listeners {
		if unixListener, ok := l.(*net.UnixListener); ok {
			unixListener.SetUnlinkOnClose(false) // systemd owns it
			return unixListener, nil
		}
	}
	return service.Listen(localhost.SocketPath(p.Getenv))
}

const stuckAfter = 2 * time.Minute // a longer round of upkeep ends the watchdog's pings

// pulse is for rounds of upkeep, each of which begins with beat. moves reports whether the last beat is recent.
func pulse() (beat func(), moves func() bool) {
	var last atomic.Pointer[time.Time]
	beat = func() { last.Store(new(time.Now())) }
	beat()
	return beat, func() bool { return time.Since(*last.Load()) < stuckAfter }
}

func (h *host) upkeep(ctx context.Context, log zerolog.Logger, beat func(), tend func() error) {
	failed, notesAt := "", time.Time{}
	for {
		beat()
		_, err := h.Devices(ctx, false)
		err = errors.Join(err, tend(), h.Store.Publish(), container.PruneRecords(disk.RunDir(h.getenv), h.StartOf))
		if time.Since(notesAt) > 10*time.Minute {
			err, notesAt = errors.Join(err, h.pruneRestarts(ctx)), time.Now()
		}
		if err != nil && ctx.Err() == nil && err.Error() != failed { // not each time
			failed = err.Error()
			log.Warn().Err(err).Msg("the state of this host could not be kept up to date")
		}
		if err == nil {
			failed = ""
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second): // 1.4.3's readers neither clean up nor compare
		}
	}
}

func (p *hostCommands) hostHandover(c *cli.Context) error {
	lock, err := p.lockService()
	if err != nil {
		return err
	}
	defer lock.Close()
	h := p.openHost()
	given, err := h.Store.HandOver(c.Context, func(files *state.Files) error {
		return h.Instances.Move(files, instances.Notes{Dir: disk.Dir(p.Getenv)})
	})
	if err != nil {
		return fmt.Errorf("give the state of this host back: %w", err)
	}
	format := "The state of this host doesn't belong to root: all users write it in %s.\n"
	if given {
		format = "The state of this host is in %s again, where all users write it.\n"
	}
	fmt.Fprintf(p.Out, format, disk.Dir(p.Getenv))
	return nil
}

// StatusDocument is the JSON of `genv host status`.
type StatusDocument struct {
	Schema   string          `json:"schema"`
	Owner    string          `json:"owner"`              // "root", or "users" where all write the state
	Since    *time.Time      `json:"since,omitempty"`    // when root took the state over
	StateDir string          `json:"state_dir"`          // of the state files
	CopyDir  string          `json:"copy_dir,omitempty"` // of the copy for genv 1.4.3
	Socket   string          `json:"socket"`
	Service  *service.Status `json:"service"`         // null if it can't be reached
	Error    string          `json:"error,omitempty"` // why not
}

func (p *hostCommands) hostStatus(c *cli.Context, format string) error {
	here := localhost.Open(p.Program)
	owner, err := here.Store.Owner()
	if err != nil {
		return err
	}
	d := StatusDocument{Schema: "genv.host/1", Owner: "users", StateDir: disk.Dir(p.Getenv), Socket: here.Service.Path}
	if owner != nil {
		d.Owner, d.Since, d.CopyDir, d.StateDir = "root", &owner.Since, owner.StateDir, here.Store.OwnedPath()
	}
	switch status, err := here.Service.Status(c.Context); {
	case err == nil:
		d.Service = &status
	case !errors.Is(err, service.ErrNotRunning) || owner != nil:
		d.Error = err.Error()
	}
	if format == "json" {
		return render.WriteJSON(p.Out, d)
	}
	p.printStatus(&d)
	return nil
}

func (p *hostCommands) printStatus(d *StatusDocument) {
	line := func(name, value string) { fmt.Fprintf(p.Out, "%-10s %s\n", name, value) }
	local := func(t time.Time) string { return t.In(p.Now().Location()).Format(time.DateTime) }
	if d.Owner == "root" {
		line("State", fmt.Sprintf("root's, in %s, since %s", d.StateDir, local(*d.Since)))
		line("Copy", d.CopyDir+", for genv 1.4.3 to read")
	} else {
		line("State", fmt.Sprintf("every user's, in %s", d.StateDir))
	}
	switch s := d.Service; {
	case s != nil:
		line("Service", fmt.Sprintf("process %d (genv %s) on %s since %s", s.PID, s.Genv, d.Socket, local(s.Since)))
		line("Requests", fmt.Sprintf("%d served, %d refused as too many, %d open", s.Served, s.Refused, s.Connections))
	case d.Error != "":
		line("Service", d.Error)
	default:
		line("Service", "not running; `systemctl enable --now genv-host.socket` lets root own the state")
	}
}

// takeOver makes the state root's. Users may lock the state files for any time. takeOver waits until ctx ends, and logs
// the holder once a minute.
func (h *host) takeOver(ctx context.Context, log zerolog.Logger) error {
	said := time.Time{}
	for {
		err := h.takeOverOnce(ctx, log)
		busy, ok := errors.AsType[*disk.BusyError](err)
		switch {
		case ctx.Err() != nil, err == nil:
			return nil
		case !ok:
			return fmt.Errorf("take over the state of this host: %w", err)
		case time.Since(said) > time.Minute:
			said = time.Now()
			text := h.heldBy(ctx, busy)
			log.Warn().Msg(text)
			enforcement.NotifySystemd(log, "STATUS="+text)
		}
	}
}

func (h *host) heldBy(ctx context.Context, busy *disk.BusyError) string {
	by := busy.Holder.String()
	if busy.Holder != nil && busy.Holder.UID != nil {
		if name := system.Username(ctx, *busy.Holder.UID); name != "" {
			by += fmt.Sprintf(" (%q)", name)
		}
	}
	return fmt.Sprintf("the state of this host can't be taken over yet: %s is locked by %s; waiting for its end",
		busy.Path, by)
}

func (h *host) takeOverOnce(ctx context.Context, log zerolog.Logger) error {
	dir := disk.Dir(h.getenv)
	owned := func() (string, error) { return h.Store.OwnedPath(), nil }
	done, warnings, err := h.Store.TakeOver(ctx, func(files *state.Files) error {
		return instances.Notes{Dir: dir}.Move(files, instances.Notes{Dir: dir, Owned: owned})
	})
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		log.Warn().Msg(warning)
	}
	if done {
		log.Info().Str("from", dir).Msg("the state of this host was taken over: `genv host handover` gives it back")
	}
	return nil
}
