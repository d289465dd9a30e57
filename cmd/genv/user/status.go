package user

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/audit"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *userCommands) statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "print whether this shell is in an environment, and in which", Action: p.status,
	}
}

func (p *userCommands) status(c *cli.Context) error {
	who := p.person()
	eid, err := who.active(c.Context)
	if errors.Is(err, errNotActive) {
		_, err = fmt.Fprint(p.Out, "Environment is not active\n", p.capsText(c.Context))
		return err
	}
	if err != nil {
		return err
	}
	files, err := who.StateFiles(c.Context)
	if err != nil {
		return err
	}
	p.Warn(files.Warnings...)
	env, err := who.mine(&files, eid)
	if err != nil {
		fmt.Fprintln(p.Out, "Environment is not active")
		p.Warn(err.Error())
		return nil
	}
	p.adviseOfIndices(who)
	p.adviseOfOthers(who, change.Current(&files, eid))
	_, err = fmt.Fprint(p.Out, text.PrintableLines(statusText(env, files.AttachedTo(eid), p.capsText(c.Context))))
	return err
}

// statusText is 1.4.3's text, with lines about caps.
func statusText(env *snapshot.Environment, attached []snapshot.DeviceIndex, caps string) string {
	gpus := "Detached from GPUs\n"
	if len(attached) > 0 {
		gpus = fmt.Sprintf("Attached to GPUs at indices %s\n", text.JoinIndices(attached))
	}
	return fmt.Sprintf("Environment is active (%s)\n%s%s\n"+
		"Configuration\n    Name: %s\n    Device count: %s\n    GPU memory capacity: %s\n\n",
		render.Name(string(env.EID)), gpus, caps,
		cmp.Or(render.Name(env.Config.Name), "N/A"), cmp.Or(env.Config.GPUCount(), "N/A"),
		cmp.Or(env.Config.GPUMemory.String(), "N/A"))
}

// capsText is empty without caps, or if they are unknown. It has the time of the last notice within a day.
func (p *userCommands) capsText(ctx context.Context) string {
	told := localhost.Told(ctx, p.Program)
	if told == nil || told.String() == "" {
		return ""
	}
	caps := text.Printable(told.String()) + "\n"
	list, err := p.box().Notices(ownUID(), p.Now())
	if err != nil || len(list) == 0 || p.Now().Sub(list[len(list)-1].Time) > 24*time.Hour {
		return caps
	}
	return caps + fmt.Sprintf("Your last message came at %s: genv notices shows it\n",
		list[len(list)-1].Time.Local().Format("15:04"))
}

func (p *userCommands) noticesCommand() *cli.Command {
	unread := false
	return &cli.Command{
		Name: "notices", Usage: "print the messages for you on this machine of the last 14 days",
		Flags:  []cli.Flag{command.Bool(&unread, "new", "only those that you have not read, as a shell shows them")},
		Action: func(*cli.Context) error { return p.notices(unread) },
	}
}

func (p *userCommands) box() notify.Box { return notify.Box{Root: disk.RootDir(p.Getenv)} }

// noticesRead is the user's own file about read notices. Several machines may share a home.
func (p *userCommands) noticesRead() string {
	dir := p.Getenv("XDG_STATE_HOME")
	if home := p.Getenv("HOME"); !filepath.IsAbs(dir) && filepath.IsAbs(home) {
		dir = filepath.Join(home, ".local", "state")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "genv", "notices."+strings.ReplaceAll(enforcelocal.Hostname(), "/", "-"))
}

func ownUID() snapshot.UID { return snapshot.UID(os.Geteuid()) } //nolint:gosec // the kernel's uids fit

func (p *userCommands) notices(unread bool) error {
	shown := false
	err := notify.Inbox{
		Box: p.box(), UID: ownUID(), Path: p.noticesRead(), Terminal: enforcelocal.TerminalOf(p.Out),
		Window: cmp.Or(p.Getenv("TMUX"), p.Getenv("STY"), p.Getenv("VSCODE_IPC_HOOK_CLI")),
	}.Show(!unread, p.Now(), func(list []notify.KeptMessage) error {
		for _, n := range list {
			shown = true
			_, err := fmt.Fprintf(p.Out, "Message from genv on %s at %s:\n  %s\n",
				text.Printable(enforcelocal.Hostname()), notify.Clock(n.Time),
				strings.ReplaceAll(strings.TrimRight(text.PrintableLines(n.Shown()), "\n"), "\n", "\n  "))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if unread || err != nil && !errors.Is(err, notify.ErrNotRemembered) {
		return err
	}
	if !shown {
		fmt.Fprintln(p.Err, "There are no messages for you on this machine.")
	}
	return nil
}

func (p *userCommands) historyCommand() *cli.Command {
	o := new(history.Options)
	return &cli.Command{
		Name: "history", Usage: "print what was done to your processes and GPUs on this machine, when and why",
		ArgsUsage: "[ID]",
		Flags:     o.Flags(),
		Action:    func(c *cli.Context) error { return o.Show(&p.Program, c, p.ownLog(), "") },
	}
}

func (p *userCommands) whyCommand() *cli.Command {
	o := new(history.Options)
	return &cli.Command{
		Name:      "why",
		Usage:     "print why a process was ended or a GPU detached, or what you were warned of, and what to do",
		ArgsUsage: "[ID]",
		Flags:     o.WhyFlags(),
		Action: func(c *cli.Context) error {
			if told := localhost.Told(c.Context, p.Program); told != nil && told.Away() != "" {
				p.Warn("a warning may be over by now: " + told.Away())
			}
			return o.Why(&p.Program, c, p.ownLog())
		},
	}
}

// ownLog is this host's audit log: the whole one for root, and others' part for them.
func (p *userCommands) ownLog() string {
	path := cmp.Or(localhost.RootLog(p.Getenv), localhost.DefaultAuditLog)
	if os.Geteuid() != 0 {
		path = audit.UserLogPath(path, snapshot.UID(os.Getuid()))
	}
	return path
}
