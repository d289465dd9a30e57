package user

import (
	"cmp"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/snapshot"
)

func (p *program) historyCommand() *cli.Command {
	o := new(history.Options)
	return &cli.Command{
		Name:      "history",
		Usage:     "print what was done to your processes and GPUs on this machine, when and why",
		ArgsUsage: "[ID]",
		Flags:     o.Flags(),
		// The log of this host: for root all of it, for others their part.
		Action: func(c *cli.Context) error { return o.Show(&p.Program, c, p.ownLog(), "") },
	}
}

func (p *program) whyCommand() *cli.Command {
	o := new(history.Options)
	return &cli.Command{
		Name:      "why",
		Usage:     "print why a process was ended or a GPU detached, or what you were warned of, and what to do",
		ArgsUsage: "[ID]",
		Flags:     o.WhyFlags(),
		Action:    func(c *cli.Context) error { return o.Why(&p.Program, c, p.ownLog()) },
	}
}

func (p *program) ownLog() string {
	path := cmp.Or(localhost.RootLog(p.Getenv), localhost.DefaultAuditLog)
	if os.Geteuid() != 0 {
		path = audit.UserLogPath(path, snapshot.UID(os.Getuid()))
	}
	return path
}
