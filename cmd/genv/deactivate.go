package main

import (
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot/state"
)

func (p *program) deactivateCommand() *cli.Command {
	return &cli.Command{
		Name:   "deactivate",
		Usage:  "give this shell back what it had; with its last shell an environment ends",
		Action: p.plainly(p.deactivate),
	}
}

// deactivate also serves a shell that was started from an active one, or whose
// environment has ended: it is in no books, and its variables go all the same.
func (p *program) deactivate(c *cli.Context) error {
	if err := refuseArguments(c); err != nil {
		return err
	}
	who, err := p.person()
	if err != nil {
		return err
	}
	if _, err := who.active(c.Context); err != nil {
		return err
	}
	caller, err := p.caller(who)
	if err != nil {
		return err
	}
	activation := state.Activation{PID: caller.PID}
	if err := who.identify(c.Context, &activation); err != nil {
		return err
	}
	if err := who.store.Update(c.Context, func(b *state.Books) error {
		b.Deactivate(caller.PID)
		return nil
	}); err != nil {
		return err
	}
	return caller.Apply(shell.Deactivate())
}
