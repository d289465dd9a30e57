package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/instances"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// hostHandover gives the state back.
func (p *program) hostHandover(c *cli.Context) error {
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
	if given {
		fmt.Fprintf(p.Out, "The state of this host is in %s again, where all users write it.\n", disk.Dir(p.Getenv))
	} else {
		fmt.Fprintf(p.Out, "The state of this host doesn't belong to root: all users write it in %s.\n",
			disk.Dir(p.Getenv))
	}
	return nil
}

// StatusDocument is the JSON of `genv host status`; docs/json.md describes it.
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

// hostStatus says who owns the state. It needs no root.
func (p *program) hostStatus(c *cli.Context, format string) error {
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

func (p *program) printStatus(d *StatusDocument) {
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

// sayEvery is how often it is said that another process holds the lock.
const sayEvery = time.Minute

// takeOver makes the state root's, if it isn't yet. Before that any user may hold the lock of
// the state files for any time: it waits until ctx ends, and says for whom.
func (h *host) takeOver(ctx context.Context, log zerolog.Logger) error {
	said := time.Time{}
	for {
		err := h.takeOverOnce(ctx, log)
		var busy *disk.BusyError
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			return nil
		case !errors.As(err, &busy):
			return fmt.Errorf("take over the state of this host: %w", err)
		case time.Since(said) > sayEvery:
			said = time.Now()
			text := h.heldBy(ctx, busy)
			log.Warn().Msg(text)
			enforcement.NotifySystemd(log, "STATUS="+text)
		}
	}
}

// heldBy says which process keeps the state from being taken over.
func (h *host) heldBy(ctx context.Context, busy *disk.BusyError) string {
	by := busy.Holder.String()
	if busy.Holder != nil && busy.Holder.UID != nil {
		if name := system.Username(ctx, *busy.Holder.UID); name != "" {
			by += fmt.Sprintf(" (%q)", name)
		}
	}
	return fmt.Sprintf("the state of this host can't be taken over yet: %s is held by %s; waiting until it ends or is "+
		"killed", busy.Path, by)
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
