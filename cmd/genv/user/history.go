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
	return &cli.Command{
		Name:      "history",
		Usage:     "print what was done to your processes and GPUs on this machine, when and why",
		ArgsUsage: "[ID]",
		Flags:     history.Flags(),
		Action:    p.historyHere,
	}
}

func (p *program) whyCommand() *cli.Command {
	return &cli.Command{
		Name:      "why",
		Usage:     "print why a process was ended or a GPU detached, the last or the one with this ID, and what to do",
		ArgsUsage: "[ID]",
		Flags:     history.WhyFlags(),
		Action:    p.why,
	}
}

// historyHere reads this host's log: for root all of it, for others their part.
func (p *program) historyHere(c *cli.Context) error {
	return history.Show(&p.Program, c, p.ownLog(), audit.Filter{})
}

// why explains a decision from the same log.
func (p *program) why(c *cli.Context) error { return history.Why(&p.Program, c, p.ownLog()) }

func (p *program) ownLog() string {
	path := cmp.Or(localhost.RootLog(p.Getenv), localhost.DefaultAuditLog)
	if os.Geteuid() != 0 {
		path = audit.UserLogPath(path, snapshot.UID(os.Getuid()))
	}
	return path
}
