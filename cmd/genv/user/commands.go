// Package user has the commands that people run on a GPU host, and the shims of
// nvidia-smi and docker.
package user

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Commands are what people type on a GPU host.
func Commands(with command.Program) []*cli.Command {
	p := &program{with}
	commands := []*cli.Command{
		p.activateCommand(), p.deactivateCommand(), p.attachCommand(), p.detachCommand(),
		p.configCommand(), p.homeCommand(), p.statusCommand(), p.lockCommand(), p.runCommand(),
		p.devicesCommand(), p.envsCommand(), p.shellCommand(),
	}
	for _, cmd := range commands {
		p.printPlainErrors(cmd)
	}
	return append(commands, p.historyCommand())
}

// printPlainErrors has a command and its subcommands print errors as 1.4.3 does,
// without "genv:".
func (p *program) printPlainErrors(cmd *cli.Command) {
	action := cmd.Action
	cmd.Action = func(c *cli.Context) error {
		err := action(c)
		var exit *command.ExitError
		if err == nil || errors.As(err, &exit) {
			return err
		}
		fmt.Fprintln(p.Err, text.PrintableLines(advised(err)))
		return &command.ExitError{Code: command.ExitFailed}
	}
	for _, sub := range cmd.Subcommands {
		p.printPlainErrors(sub)
	}
}
