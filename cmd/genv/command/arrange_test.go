package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func app() *cli.App {
	text := func(names string) cli.Flag { return command.String(new(string), names, "") }
	list := func(names string) cli.Flag { return command.Strings(new([]string), names, "") }
	many := func(names string) cli.Flag { return command.Strings(new([]string), names, "").Many() }
	on := func(names string) cli.Flag { return command.Bool(new(bool), names, "") }
	return &cli.App{Commands: []*cli.Command{
		{Name: "attach", Flags: []cli.Flag{text("count"), text("index"), on("config"), on("over-subscribe,o,allow-over-subscription")}},
		{Name: "config", ArgsUsage: "WORD", Flags: []cli.Flag{on("clear"), text("number")}},
		{Name: "lock", SkipFlagParsing: true},
		{Name: "run", ArgsUsage: "COMMAND [ARGUMENT…]", Flags: []cli.Flag{text("gpus"), on("quiet,q")}},
		{Name: "remote", Flags: []cli.Flag{list("host,H"), text("interval")}, Subcommands: []*cli.Command{
			{Name: "query", Flags: []cli.Flag{many("query,queries"), list("host,H"), text("format")}},
			{Name: "enforce", Flags: []cli.Flag{list("host,H"), text("interval"), text("insecure"), many("max-devices-for-user"), text("max-devices-per-user"), on("env-memory"), on("no-env-memory")}},
		}},
	}}
}

func TestArrange(t *testing.T) {
	for line, want := range map[string]string{
		"":                                     "",
		"attach --count 2 -o":                  "attach --count 2 -o",
		"attach --over --cou 2":                "attach --over-subscribe --count 2",
		"attach --allow --ind=3":               "attach --allow-over-subscription --index=3",
		"attach --o":                           "attach --over-subscribe",
		"attach --count --over":                "attach --count --over", // what follows is the value
		"attach --count":                       "attach --count",
		"attach --nothing --he":                "attach --nothing --help",
		"--vers":                               "--version",
		"config gpus --clear":                  "config --clear gpus",
		"config gpus -1":                       "config gpus -1",
		"config name --cl -- --clear":          "config --clear -- name --clear",
		"config --c gpus":                      "config --clear gpus",
		"config --number 2 gpus":               "config --number 2 gpus",
		"lock attach --cou 2 -- --cl":          "lock attach --cou 2 -- --cl",
		"lock --he":                            "lock --he",
		"run --qui python --qui --query a b":   "run --quiet python --qui --query a b",
		"run --gpus 1 -- python --q":           "run --gpus 1 -- python --q",
		"remote --ho a,b query --query x y -H": "remote query --host a,b --query x --query y -H",
		"remote -H query query --quer x y":     "remote query -H query --query x --query y",
		"remote query --queries x y --form f":  "remote query --queries x --queries y --format f",
		"remote query --query":                 "remote query --query",
		"remote enforce --max-devices-f a=1 b=2 --no --env": "remote enforce --max-devices-for-user a=1 --max-devices-for-user b=2 --no-env-memory --env-memory",
		"remote nothing --ho a":                             "remote --host a nothing",
		"remote --in 3 enforce --host a -H b":               "remote enforce --interval 3 --host a -H b",
	} {
		got := proctest.Try(command.Arrange(app(), strings.Fields("genv "+line))).OK(t, line)
		require.Equal(t, strings.Fields("genv "+want), got, line)
	}
}

func TestAnAmbiguousFlagIsRefused(t *testing.T) {
	for line, want := range map[string]string{
		"attach --co 2":                  "--co is ambiguous: write --count or --config",
		"remote enforce --max-devices 2": "--max-devices is ambiguous: write --max-devices-for-user or --max-devices-per-user",
	} {
		_, err := command.Arrange(app(), strings.Fields("genv "+line))
		require.EqualError(t, err, want)
		require.Equal(t, command.ExitFailed, command.ExitCode(err))
	}
}

func FuzzArrange(f *testing.F) {
	f.Add("attach --over --cou 2")
	f.Add("remote -H a query --query x y -- --z")
	f.Fuzz(func(t *testing.T, line string) {
		args := append([]string{"genv"}, strings.Fields(line)...)
		got, err := command.Arrange(app(), args)
		if err != nil {
			return
		}
		again := proctest.Try(command.Arrange(app(), got)).OK(t)
		require.Equal(t, got, again, "what was arranged stays as it is")
	})
}

func TestUnknownFlags(t *testing.T) {
	c := cli.NewContext(nil, nil, nil)
	c.Command = &cli.Command{HelpName: "genv remote enforce", Flags: []cli.Flag{
		&cli.StringFlag{Name: "interval", Aliases: []string{"i"}}, &cli.BoolFlag{Name: "dry-run"},
		&cli.StringFlag{Name: "max-devices-per-user"}, &cli.BoolFlag{Name: "env-memory"}, &cli.BoolFlag{Name: "no-env-memory"},
	}}
	for name, want := range map[string]string{
		"intervall":        "unknown flag --intervall (did you mean --interval?)",
		"interval-typo":    "unknown flag --interval-typo (did you mean --interval?)",
		"dryrun":           "unknown flag --dryrun (did you mean --dry-run?)",
		"devices-per-user": "unknown flag --devices-per-user (did you mean --max-devices-per-user?)",
		"no-env-memori":    "unknown flag --no-env-memori (did you mean --no-env-memory?)",
		"frobnicate":       "unknown flag --frobnicate; see genv remote enforce --help",
		"z":                "unknown flag -z; see genv remote enforce --help",
		"ö":                "unknown flag -ö; see genv remote enforce --help",
		"xy":               "unknown flag --xy; see genv remote enforce --help",
	} {
		err := command.FlagError(c, errors.New("flag provided but not defined: -"+name), false)
		require.EqualError(t, err, want)
		require.Equal(t, command.ExitFailed, command.ExitCode(err))
	}
	for said, want := range map[string]string{
		"flag needs an argument: -interval":               "flag needs an argument: --interval",
		`invalid value "x -y" for flag -i: parse error`:   `invalid value "x -y" for flag -i: parse error`,
		"bad flag syntax: -=5":                            "bad flag syntax: -=5",
		`invalid boolean value "-" for -dry-run: parse e`: `invalid boolean value "-" for --dry-run: parse e`,
	} {
		require.EqualError(t, command.FlagError(c, errors.New(said), false), want+"; see genv remote enforce --help")
	}
}

// Whatever takes too long, its error has no words of Go for that.
func TestALateError(t *testing.T) {
	commands := func(command.Program, string) []*cli.Command {
		return []*cli.Command{{Name: "wait", Action: func(*cli.Context) error { return fmt.Errorf("ask: %w", context.DeadlineExceeded) }}}
	}
	var errs bytes.Buffer
	code := command.Run(t.Context(), command.Program{Err: &errs, Getenv: func(string) string { return "" }}, commands, []string{"genv", "wait"})
	require.Equal(t, command.ExitFailed, code)
	require.Equal(t, "genv: ask: no answer in time\n", errs.String())
}

// TestValues: what a flag doesn't take is refused before its command runs, on whatever level it was given.
func TestValues(t *testing.T) {
	var interval, pause time.Duration
	var gpus int
	flags := func() []cli.Flag {
		interval, pause, gpus = 10*time.Second, 0, 1
		return []cli.Flag{
			command.FormatFlag(new(string), "tui", "csv", "json"),
			command.String(new(string), "sort", "").OneOf("user", "host"),
			command.Duration(&interval, "interval", ""),
			command.Duration(&pause, "pause", "").OrZero(),
			command.Int(&gpus, "gpus", "").AtLeast(1),
		}
	}
	for line, want := range map[string]string{
		"": "10s 0s", "--format csv --sort host --gpus 2": "10s 0s", "--sort=": "10s 0s", "--interval 500ms --pause 0": "500ms 0s", "--pause 1m": "10s 1m0s",
		"ask": "10s 0s", "--interval 3 ask": "3s 0s", "ask --interval 3": "3s 0s",

		"--format html":     `--format "html": write tui, csv or json`,
		"--format=":         `--format "": write tui, csv or json`,
		"--format html ask": `--format "html": write tui, csv or json`,
		"--sort x":          `--sort "x": write user or host`,
		"--interval 0":      `--interval "0": write a duration of more than 0`,
		"--interval=":       "--interval",
		"--interval soon":   "--interval",
		"--pause soon ask":  "--pause",
		"--gpus 0":          "--gpus 0: write 1 or more",
		"--gpus 0 ask":      "--gpus 0: write 1 or more",
		"pick":              "missing --query: write one or more of a b",
		"pick --query a c":  `--query "c": write a or b`,
		"pick --query a b":  "10s 0s",
	} {
		var out, failed bytes.Buffer
		action := func(*cli.Context) error {
			_, err := out.WriteString(interval.String() + " " + pause.String())
			return err
		}
		p := command.Program{Out: &out, Err: &failed, Getenv: func(string) string { return "" }, Now: time.Now}
		code := command.Run(context.Background(), p, func(command.Program, string) []*cli.Command {
			pick := &cli.Command{Name: "pick", Action: action, Flags: []cli.Flag{command.Strings(new([]string), "query", "").OneOf("a", "b")}}
			return []*cli.Command{{Name: "gpus", Action: action, Flags: flags(), Subcommands: []*cli.Command{{Name: "ask", Action: action, Flags: flags()}, pick}}}
		}, append([]string{"genv", "gpus"}, strings.Fields(line)...))
		if code == command.ExitOK {
			require.Equal(t, want, out.String(), line)
			continue
		}
		require.Equal(t, command.ExitFailed, code, line)
		require.Contains(t, failed.String(), want, line)
		require.Empty(t, out.String(), line)
	}
}
