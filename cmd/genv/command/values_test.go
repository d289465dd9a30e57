package command_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

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
