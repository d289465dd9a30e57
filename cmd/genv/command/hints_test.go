package command_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

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
		"shards":           "unknown flag --shards: leave it out: one controller enforces all hosts; start it once with --take-over",
		"web-auth":         "unknown flag --web-auth: use --web-config FILE",
		"web-tls-cert":     "unknown flag --web-tls-cert: use --web-config FILE",
		"web-tls-key":      "unknown flag --web-tls-key: use --web-config FILE",
	} {
		err := command.FlagError(c, errors.New("flag provided but not defined: -"+name))
		require.EqualError(t, err, want)
		require.Equal(t, command.ExitFailed, command.ExitCode(err))
	}
	require.EqualError(t, command.FlagError(c, errors.New("flag needs an argument: -interval")),
		"flag needs an argument: -interval; see genv remote enforce --help")
}
