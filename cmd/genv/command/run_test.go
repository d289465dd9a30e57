package command_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

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
