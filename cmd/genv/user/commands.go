// Package user has the commands that people run on a GPU host, and the shims of
// nvidia-smi and docker.
package user

import (
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Commands are what people type on a GPU host.
func Commands(with command.Program) []*cli.Command {
	p := &program{with}
	commands := []*cli.Command{
		p.activateCommand(), p.deactivateCommand(), p.attachCommand(), p.detachCommand(), p.configCommand(), p.homeCommand(), p.statusCommand(),
		p.dockerCommand(), p.lockCommand(), p.runCommand(), p.llmCommand(), p.devicesCommand(), p.envsCommand(), p.shellCommand(),
	}
	p.printPlainErrors(commands)
	return append(commands, p.noticesCommand(), p.historyCommand(), p.whyCommand())
}

// outsideContainers is the action of a command that only changes environments: in a container of
// genv's it fails before it looks for a shell or for devices.
func (p *program) outsideContainers(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := localhost.CheckContained(p.Getenv); err != nil {
			return err
		}
		return action(c)
	}
}

// printPlainErrors has commands and their subcommands print errors as 1.4.3 does,
// without "genv:".
func (p *program) printPlainErrors(commands []*cli.Command) {
	for _, cmd := range commands {
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
		p.printPlainErrors(cmd.Subcommands)
	}
}

// eidFlag names the environment of a command that is about one.
func eidFlag() cli.Flag {
	return &cli.StringFlag{Name: "eid", Usage: "`ID` of the environment; by default that of this shell"}
}

func indexFlag(usage string) cli.Flag { return &cli.StringFlag{Name: "index", Usage: usage} }

// indices reads --index.
func indices(c *cli.Context) ([]snapshot.DeviceIndex, error) {
	if !c.IsSet("index") {
		return nil, nil
	}
	list, err := text.ParseIndices[snapshot.DeviceIndex](c.String("index"))
	if err != nil {
		return nil, command.UsageError("--index %q: write the index of a device, such as 0, or several, such as 0,2; `genv devices` lists them", c.String("index"))
	}
	return list, nil
}

func quietFlag(usage string) cli.Flag {
	return &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: usage}
}

// shellFlag is how shells that 1.4.3 initialised call.
func shellFlag(usage string) cli.Flag { return &cli.StringFlag{Name: "shell", Usage: usage} }

// listFlags are those of the commands that list.
func listFlags() []cli.Flag {
	return slices.Concat(command.OutputFlags(), []cli.Flag{command.TimestampFlag()}, fileFlags())
}

// fileFlags are those of the commands that read the state files.
func fileFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "no-cleanup", Usage: "show what has ended too, and change nothing"},
		&cli.BoolFlag{Name: "reset", Usage: "clear the state file first (only root may)"},
	}
}
