// Package guard has `genv guard`, and the Keeper of this machine's guard for other commands.
package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type guardCommands struct{ command.Program }

// Command is `genv guard`.
func Command(with command.Program) *cli.Command {
	p := &guardCommands{with}
	o := &options{lease: time.Minute}
	return &cli.Command{
		Name: "guard", Usage: "have the kernel deny users the GPUs that are not attached to them",
		Subcommands: []*cli.Command{
			{
				Name: "status", Usage: "show what the guard does, who may open what, and what the kernel can do",
				Flags:  []cli.Flag{command.FormatFlag(&o.format, "tui", "json")},
				Action: func(c *cli.Context) error { return p.status(c, o.format) },
			},
			{
				Name: "run", Usage: "guard this machine until a signal comes",
				Flags: []cli.Flag{
					command.String(&o.mode, "mode", "`MODE`: watch reports what enforce would deny").OneOf("watch",
						"enforce"),
					command.Duration(&o.lease, "lease", "allow every open if the guard isn't renewed for this `TIME`"),
					command.Int(&o.firstUID, "first-uid", "never deny users below this "+
						"`UID`").DefaultText("UID_MIN of /etc/login.defs"),
					command.Strings(&o.exemptUser, "exempt-user", "let this `USER` open every GPU; may be repeated"),
					command.Strings(&o.exemptDevice, "exempt-device",
						"let every user open GPU `INDEX`; may be repeated"),
				},
				Action: func(c *cli.Context) error { return p.run(c, o) },
			},
			{
				Name: "off", Usage: "turn the guard off at once",
				Flags: []cli.Flag{
					command.Bool(&o.veto, "veto", "keep it off as long as a file exists, also after a reboot"),
				},
				Action: func(c *cli.Context) error { return p.off(c, o.veto) },
			},
			{Name: "resume", Usage: "let the policy turn the guard on again after off", Action: p.resume},
		},
	}
}

type options struct {
	format                   string
	mode                     string
	lease                    time.Duration
	firstUID                 int
	exemptUser, exemptDevice []string
	veto                     bool
}

func needsRoot(c *cli.Context) error {
	if os.Geteuid() != 0 {
		return command.UsageError("only root can do that: sudo %s", c.Command.HelpName)
	}
	return nil
}

func (p *guardCommands) author(how string) string {
	return fmt.Sprintf("%s with `%s`", text.Cut(cmp.Or(p.Getenv("SUDO_USER"), "root"), 64), how)
}

// off ends the guard, first in the kernel, whatever else fails. A veto needs no order; earlier orders hold after it.
func (p *guardCommands) off(c *cli.Context, lasting bool) error {
	if err := needsRoot(c); err != nil {
		return err
	}
	veto := VetoFile(p.Getenv)
	turnOff := p.turnOff
	if lasting {
		if !p.vetoExists() { // keep its content
			err := cmp.Or(os.MkdirAll(filepath.Dir(veto), 0o755), os.WriteFile(veto, nil, 0o644))
			if err != nil {
				return err
			}
		}
		turnOff = func(string) error { return p.remove(guard.Status{Reason: veto + " exists", Veto: true}) }
	}
	if err := turnOff(p.author("genv guard off")); err != nil {
		return err
	}
	if err := p.awaitUnpinned(c.Context); err != nil {
		return err
	}
	fmt.Fprintln(p.Out, "The guard is off: every user may open every GPU.")
	if p.vetoExists() {
		fmt.Fprintf(p.Out, "It stays off as long as %s exists.\n", veto)
		return nil
	}
	fmt.Fprintf(p.Out, "It stays off, whatever a controller orders, until sudo genv guard resume or run, or a reboot. "+
		"To keep it off for good: sudo touch %s\n", veto)
	return nil
}

// awaitUnpinned waits up to 3 s until a guard without pins is off: only the process that keeps it can end it.
func (p *guardCommands) awaitUnpinned(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for {
		said, err := guard.ReadStatus(disk.RunDir(p.Getenv))
		if err != nil || !said.Unpinned || said.Now(p.Now()) == guard.Off || keeperEnded(&said) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %[1]d has not ended its guard without pins: sudo kill -KILL %[1]d ends both",
				said.Keeper)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *guardCommands) vetoExists() bool {
	_, err := os.Lstat(VetoFile(p.Getenv))
	return err == nil
}

func (p *guardCommands) resume(c *cli.Context) error {
	if err := needsRoot(c); err != nil {
		return err
	}
	dir := disk.RunDir(p.Getenv)
	present, err := guard.ReadOrder(dir)
	if err != nil && !errors.Is(err, guard.ErrNoOrder) {
		return err
	}
	if err != nil || present.Mode != guard.Off {
		fmt.Fprintln(p.Out, "The guard was not turned off with `genv guard off`.")
	} else {
		if err := guard.WithdrawOrder(dir, present); err != nil {
			return err
		}
		if err := p.publish(guard.Status{Reason: "it has no order"}); err != nil {
			return err
		}
		fmt.Fprintln(p.Out, "A controller with a guard in its policy may turn the guard on again.")
	}
	if p.vetoExists() {
		fmt.Fprintf(p.Out, "The guard stays off as long as %[1]s exists: sudo rm %[1]s\n", VetoFile(p.Getenv))
	}
	return nil
}

// turnOff removes the guard, and leaves an order that keeps Keepers from restoring it.
func (p *guardCommands) turnOff(by string) error {
	if err := pinsOf(p.Getenv).remove(); err != nil {
		return err
	}
	now, err := guard.Now()
	if err != nil {
		return err
	}
	given, err := guard.GiveOrder(disk.RunDir(p.Getenv), guard.Order{Mode: guard.Off, By: by}, "", now)
	if err != nil {
		return err
	}
	// A Keeper may just have restored it.
	return p.remove(guard.Status{Reason: "it was turned off by " + by, Order: &given, Given: given.Given})
}

// remove follows a change of the order, which a Keeper follows by itself.
func (p *guardCommands) remove(s guard.Status) error {
	if err := pinsOf(p.Getenv).remove(); err != nil {
		return err
	}
	return p.publish(s)
}

func (p *guardCommands) publish(s guard.Status) error {
	dir := disk.RunDir(p.Getenv)
	lock, err := guard.TryLock(dir)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close()
	s.Time, s.Devices, s.Users = p.Now().UTC(), []guard.Device{}, []guard.AllowedUser{}
	return guard.WriteStatus(dir, s)
}
