// Package user has the commands that people run on a GPU host, and the shims of
// nvidia-smi and docker.
package user

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Commands are what people type on a GPU host.
func Commands(with command.Program) []*cli.Command {
	p := &program{with}
	commands := []*cli.Command{
		{
			Name:   "activate",
			Usage:  "activate an environment in this shell",
			Flags:  activationFlags(),
			Action: p.activate,
		},
		{
			Name:   "deactivate",
			Usage:  "leave the environment, which ends with its last process",
			Flags:  []cli.Flag{shellFlag("answer the shell with this `PID`, which genv 1.4.3 initialised, on stdout")},
			Action: p.deactivate,
		},
		{
			Name:  "attach",
			Usage: "attach devices to this environment: as many as are configured, or one",
			Flags: append(attachFlags(),
				&cli.BoolFlag{Name: "config", Usage: "attach as many as are configured, and none if no number is"},
				&cli.BoolFlag{Name: "refresh", Usage: "attach nothing; update this shell after another terminal attached or detached devices"}),
			Action: p.attach,
		},
		{
			Name:   "detach",
			Usage:  "detach devices from this environment, by default all",
			Flags:  []cli.Flag{indexFlag("detach only these devices: `INDEX`, or several with commas")},
			Action: p.detach,
		},
		p.configCommand(),
		{
			Name:   "home",
			Usage:  "print the folder in which configuration is saved",
			Flags:  []cli.Flag{quietFlag("print nothing if there is none, and exit with 0")},
			Action: p.printHome,
		},
		{Name: "status", Usage: "print whether this shell is in an environment, and in which", Action: p.status},
		p.dockerCommand(),
		{
			Name:            "lock",
			Usage:           "run a command, or without one only wait, while no other `genv lock` uses this environment's devices",
			ArgsUsage:       "[COMMAND [ARGUMENT…]]",
			SkipFlagParsing: true, // all that follows is the command's
			Action:          p.lock,
		},
		{
			Name:      "run",
			Usage:     "run a command in an environment of its own, which ends with it; for cron, at, scripts and systemd",
			ArgsUsage: "COMMAND [ARGUMENT…]",
			Flags: append(environment.SettingFlags(), environment.OverSubscribeFlag(),
				&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "don't print its devices"}),
			Action: p.runIn,
		},
		p.llmCommand(),
		p.devicesCommand(),
		p.envsCommand(),
		p.shellCommand(),
	}
	p.refuseInContainers(commands)
	p.printPlainErrors(commands)
	return append(commands, p.noticesCommand(), &cli.Command{
		Name:      "history",
		Usage:     "print what was done to your processes and devices on this machine, when and why",
		ArgsUsage: "[ID]",
		Flags:     history.Flags(),
		Action:    p.historyHere,
	}, &cli.Command{
		Name:      "why",
		Usage:     "print why a process was ended or a device detached, the last or the one with this ID, and what was judged",
		ArgsUsage: "[ID]",
		Flags:     command.OutputFlags(),
		Action:    p.why,
	})
}

// changing are the commands that only change environments: in a container of genv's they fail
// before they look for a shell or for devices.
var changing = []string{"activate", "deactivate", "attach", "detach", "docker", "run"}

func (p *program) refuseInContainers(commands []*cli.Command) {
	for _, cmd := range commands {
		if !slices.Contains(changing, cmd.Name) {
			continue
		}
		action := cmd.Action
		cmd.Action = func(c *cli.Context) error {
			if err := localhost.CheckContained(p.Getenv); err != nil {
				return err
			}
			return action(c)
		}
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

// historyHere reads this host's log: for root all of it, for others their part.
func (p *program) historyHere(c *cli.Context) error {
	return history.Show(&p.Program, c, p.ownLog(), audit.Filter{})
}

// why explains a decision from the same log.
func (p *program) why(c *cli.Context) error { return history.Why(&p.Program, c, p.ownLog()) }

func (p *program) ownLog() string {
	path := p.Getenv("GENV_AUDIT_LOG")
	if path == "" || path == "off" {
		path = localhost.DefaultAuditLog
	}
	if os.Geteuid() != 0 {
		path = audit.UserLogPath(path, snapshot.UID(os.Getuid()))
	}
	return path
}
