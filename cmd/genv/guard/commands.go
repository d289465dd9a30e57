package guard

import (
	"cmp"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
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
					&cli.UintFlag{Name: "first-uid", DefaultText: "UID_MIN of /etc/login.defs", Usage: "never deny users below this `UID`"},
					&cli.StringSliceFlag{Name: "exempt-user", Usage: "let this `USER` open every device; may be repeated"},
					&cli.StringSliceFlag{Name: "exempt-device", Usage: "let every user open device `INDEX`; may be repeated"},
				},
				Action: p.run,
			},
			{
				Name:  "off",
				Usage: "turn the guard off at once",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "veto", Usage: "keep it off as long as a file exists, also after a reboot"},
				},
				Action: p.off,
			},
			{
				Name:   "resume",
				Usage:  "let the policy turn the guard on again after off",
				Action: p.resume,
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
