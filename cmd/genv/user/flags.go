package user

import (
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

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
