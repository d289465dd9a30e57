// Package user has the commands that people run on a GPU host, and the shims of nvidia-smi and docker.
package user

import (
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type userCommands struct{ command.Program }

// Commands are what people type on a GPU host.
func Commands(with command.Program) []*cli.Command {
	p := &userCommands{with}
	commands := []*cli.Command{
		p.activateCommand(), p.deactivateCommand(), p.attachCommand(), p.detachCommand(), p.configCommand(),
		p.homeCommand(), p.statusCommand(), p.dockerCommand(), p.lockCommand(), p.runCommand(), p.llmCommand(),
		p.devicesCommand(), p.envsCommand(), p.shellCommand(),
	}
	p.printPlainErrors(commands)
	return append(commands, p.noticesCommand(), p.historyCommand(), p.whyCommand(), p.reserveCommand())
}

// outsideContainers is the action of a command that only changes environments: in a container of
// genv's it fails before it looks for a shell or for devices.
func (p *userCommands) outsideContainers(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := localhost.CheckContained(p.Getenv); err != nil {
			return err
		}
		return action(c)
	}
}

// printPlainErrors has commands and their subcommands print errors as 1.4.3 does, without "genv:".
func (p *userCommands) printPlainErrors(commands []*cli.Command) {
	for _, cmd := range commands {
		action := cmd.Action
		cmd.Action = func(c *cli.Context) error {
			err := action(c)
			if _, ok := errors.AsType[*command.ExitError](err); ok || err == nil {
				return err
			}
			fmt.Fprintln(p.Err, text.PrintableLines(advised(err)))
			return &command.ExitError{Code: command.ExitFailed}
		}
		p.printPlainErrors(cmd.Subcommands)
	}
}

func eidFlag(to *string) cli.Flag {
	return command.String(to, "eid", "`ID` of the environment; by default that of this shell")
}

// readIndices is the devices that --index names; nil for none.
func readIndices(c *cli.Context, written string) ([]snapshot.DeviceIndex, error) {
	if !c.IsSet("index") {
		return nil, nil
	}
	list, err := text.ParseIndices[snapshot.DeviceIndex](written)
	if err != nil {
		return nil, command.WrongFlag("index", " %q: write the index of a GPU, such as 0, or several, such as 0,2; "+
			"`genv gpus` lists them", written)
	}
	return list, nil
}

// shellFlag is how shells that 1.4.3 initialised call.
func shellFlag(to *string) cli.Flag {
	return command.String(to, "shell", "answer the shell with this `PID`, which genv 1.4.3 initialised, on stdout")
}

type stateOptions struct {
	render.Output
	noCleanup, reset bool
}

func (o *stateOptions) listFlags() []cli.Flag {
	return slices.Concat(command.OutputFlags(&o.Output), []cli.Flag{command.TimestampFlag(&o.Output)}, o.fileFlags())
}

func (o *stateOptions) fileFlags() []cli.Flag {
	return []cli.Flag{
		command.Bool(&o.noCleanup, "no-cleanup", "show what has ended too, and change nothing"),
		command.Bool(&o.reset, "reset", "clear the state file first (only root may)"),
	}
}

// checkReset protects the other users: the state files are those of all.
func (o *stateOptions) checkReset(who *hostUser) error {
	if o.reset && who.uid != 0 {
		return errors.New("--reset clears the state of all users: only root may, with `sudo genv envs --reset` or " +
			"`sudo genv devices --reset`")
	}
	return nil
}
