package guard

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/guard/mode"
	"github.com/seed-3119e985/genv/enforce/guard/order"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// program is genv as these commands see it.
type program struct{ command.Program }

// Commands are `genv guard …`.
func Commands(with command.Program) []*cli.Command {
	p := &program{with}
	return []*cli.Command{{
		Name:  "guard",
		Usage: "have the kernel deny users the GPUs that are not attached to them",
		Subcommands: []*cli.Command{
			{
				Name:   "status",
				Usage:  "show what the guard does, who may open what, and what the kernel can do",
				Flags:  []cli.Flag{command.FormatFlag("tui", "json")},
				Action: p.status,
			},
			{
				Name:  "run",
				Usage: "guard this machine until a signal comes",
				Flags: []cli.Flag{
					command.OneOf(&cli.StringFlag{Name: "mode", Usage: "`MODE`: watch reports what enforce would deny"}, []string{"watch", "enforce"}),
					&cli.StringFlag{Name: "lease", Value: "60s", Usage: "allow every open if this process hasn't renewed the guard for this `TIME`"},
					&cli.UintFlag{Name: "first-uid", Value: uint(order.DefaultFirstUID), Usage: "never deny users below this `UID`"},
					&cli.StringSliceFlag{Name: "exempt-user", Usage: "let this `USER` open every device; may be repeated"},
					&cli.StringSliceFlag{Name: "exempt-device", Usage: "let every user open device `INDEX`; may be repeated"},
				},
				Action: p.run,
			},
			{
				Name:  "off",
				Usage: "turn the guard off at once",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "veto", Usage: "also keep it off, whatever a controller orders"},
				},
				Action: p.off,
			},
		},
	}}
}

// needsRoot refuses a command for others than root.
func needsRoot(c *cli.Context) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return command.UsageError("only root can do that: sudo %s", c.Command.HelpName)
}

// author is who gives an order, for people.
func (p *program) author(how string) string {
	return fmt.Sprintf("%s with `%s`", text.Cut(cmp.Or(p.Getenv("SUDO_USER"), "root"), 64), how)
}

// off ends the guard: first in the kernel, whatever else fails.
func (p *program) off(c *cli.Context) error {
	if err := needsRoot(c); err != nil {
		return err
	}
	veto := VetoFile(p.Getenv)
	if c.Bool("veto") {
		if err := writeVeto(veto); err != nil {
			return err
		}
	}
	if err := p.turnOff(p.author("genv guard off")); err != nil {
		return err
	}
	fmt.Fprintln(p.Out, "The guard is off: every user may open every device.")
	if _, err := os.Lstat(veto); err == nil {
		fmt.Fprintf(p.Out, "It stays off as long as %s exists.\n", veto)
	} else {
		fmt.Fprintf(p.Out, "It stays off until genv guard run, or a controller with a guard in its policy, turns it on. To keep it off for good: sudo touch %s\n", veto)
	}
	return nil
}

// turnOff removes the guard, and leaves an order that keeps Keepers from bringing it back.
func (p *program) turnOff(by string) error {
	if err := pinsOf(p.Getenv).remove(); err != nil {
		return err
	}
	now, err := guard.Now()
	if err != nil {
		return err
	}
	given, err := order.Give(localhost.RunDir(p.Getenv), order.Order{Mode: mode.Off, By: by}, "", now)
	if err != nil {
		return err
	}
	// A Keeper may just have attached it again.
	return p.remove(order.Status{Reason: "it was turned off by " + by, Order: &given.Order, Given: given.Time})
}

// remove removes the guard after a change of the order. A Keeper follows that by itself;
// without one, the status is written here.
func (p *program) remove(s order.Status) error {
	if err := pinsOf(p.Getenv).remove(); err != nil {
		return err
	}
	dir := localhost.RunDir(p.Getenv)
	lock, err := guard.TryLock(dir)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close()
	s.Time, s.Devices, s.Users = p.Now().UTC(), []order.Device{}, []order.User{}
	return order.WriteStatus(dir, s)
}

// writeVeto makes the veto file.
func writeVeto(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}
