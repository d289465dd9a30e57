// Package user has the commands that people run on a GPU host, and the shims of
// nvidia-smi and docker.
package user

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/change"
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

// activationFlags are those of `genv activate`, here and on a host.
func activationFlags() []cli.Flag {
	return append(environment.SettingFlags(),
		&cli.StringFlag{Name: "id", Aliases: []string{"eid"}, Usage: "enter the existing environment with this `ID`, for example from another terminal"},
		&cli.BoolFlag{Name: "no-prompt", Usage: "leave the shell's prompt as it is"},
		&cli.BoolFlag{Name: "no-attach", Usage: "attach no devices yet"},
		&cli.BoolFlag{Name: "no-load", Usage: "don't load the configuration from the folder that genv home prints"},
		shellFlag("answer the shell with this `PID`, which genv 1.4.3 initialised, on stdout"),
		environment.OverSubscribeFlag(),
	)
}

// attachFlags are those of `genv attach` and `genv devices attach`.
func attachFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "count", Usage: "attach devices until there are `N` in all"},
		indexFlag("attach these devices: `INDEX`, or several with commas"),
		&cli.StringFlag{Name: "mig", Usage: "attach this MIG `INSTANCE`, or several with commas: a UUID, or a profile such as 1g.10gb for any free one"},
		environment.OverSubscribeFlag(),
	}
}

// eidFlag names the environment of a command that is about one.
func eidFlag() cli.Flag {
	return &cli.StringFlag{Name: "eid", Usage: "`ID` of the environment; by default that of this shell"}
}

func indexFlag(usage string) cli.Flag { return &cli.StringFlag{Name: "index", Usage: usage} }

// attachRequest reads attachFlags.
func (p *program) attachRequest(c *cli.Context) (change.Attach, error) {
	r := change.Attach{OverSubscribe: environment.OverSubscribe(c, p.Getenv)}
	if c.IsSet("count") {
		n, err := strconv.Atoi(c.String("count"))
		if err != nil || n < 1 {
			return r, command.UsageError("--count %q: write how many devices you need in all, 1 or more", c.String("count"))
		}
		r.Count = n
	}
	var err error
	r.Indices, err = indices(c)
	given := 0
	for _, name := range []string{"count", "index", "mig"} {
		if c.IsSet(name) {
			given++
		}
	}
	if err == nil && given > 1 {
		err = command.UsageError("--count, --index and --mig exclude each other")
	}
	return r, err
}

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

func configFlags() []cli.Flag {
	return []cli.Flag{&cli.BoolFlag{Name: "clear", Usage: "remove the setting, or all"}}
}

// valueFlags are how programs give `genv envs config` a value, each for one setting.
func valueFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "count", Usage: "the number `N` of gpus; the same as gpus N"},
		&cli.StringFlag{Name: "gpu-memory", Usage: "the `CAPACITY` of gpu-memory; the same as gpu-memory CAPACITY"},
		&cli.StringFlag{Name: "name", Usage: "the `NAME`; the same as name NAME"},
	}
}

// settingOf are the settings that valueFlags set.
var settingOf = map[string]string{"count": "gpus", "gpu-memory": "gpu-memory", "name": "name"}

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
