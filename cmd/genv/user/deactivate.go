package user

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"

	"github.com/seed-3119e985/genv/cmd/genv/command"
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
	if err := command.RefuseArguments(c); err != nil {
		return err
	}
	who, err := p.person()
	if err != nil {
		return err
	}
	_, inactive := who.active(c.Context)
	caller, err := p.caller(who)
	if errors.Is(inactive, errNotActive) && err == nil {
		inactive, err = who.unregistered(c.Context, caller.PID)
	}
	if err := cmp.Or(inactive, err); err != nil {
		return err
	}
	activation := state.Activation{PID: caller.PID}
	if err := who.identify(c.Context, &activation); err != nil {
		return err
	}
	if err := p.leave(c.Context, who, func(b *state.Files) (snapshot.EnvID, error) { return b.Deactivate(caller.PID), nil }); err != nil {
		return err
	}
	return caller.Apply(shell.Deactivate())
}

// leave has a process leave an environment, and warns if that one goes on with
// other processes.
func (p *program) leave(ctx context.Context, who *person, change func(*state.Files) (snapshot.EnvID, error)) error {
	var goesOn string
	err := who.Store.Update(ctx, func(b *state.Files) error {
		eid, err := change(b)
		goesOn = goesOnLine(b, eid)
		return err
	})
	if err == nil && goesOn != "" {
		p.Warn(goesOn)
	}
	return err
}

// goesOnLine says which processes still run in an environment that its last shell
// has left; "" if there are none.
func goesOnLine(b *state.Files, eid snapshot.EnvID) string {
	pids := b.Successors(eid)
	if len(pids) == 0 {
		return ""
	}
	words := make([]string, len(pids))
	for i, pid := range pids {
		words[i] = strconv.Itoa(int(pid))
	}
	return fmt.Sprintf("Environment %s goes on, with its devices, until its processes end: %s", snapshot.Shown(string(eid)), strings.Join(words, " "))
}

// unregistered is errNotActive, unless the state files have the shell although it has
// lost the variable that says so.
func (w *person) unregistered(ctx context.Context, pid snapshot.PID) (inactive, err error) {
	books, err := w.StateFiles(ctx)
	if err != nil || books.EnvironmentOf(pid) != nil {
		return nil, err
	}
	return errNotActive, nil
}
