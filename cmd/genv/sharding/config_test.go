package sharding

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// What a shard's process prints last says of which shard it is; the exit code stays.
func TestNamed(t *testing.T) {
	third := 2
	for name, row := range map[string]struct {
		own  *int
		err  error
		want string
		code int
	}{
		"no error":        {&third, nil, "", command.ExitOK},
		"a shard":         {&third, &command.ExitError{Code: command.ExitReplaced, Err: errors.New("replaced")}, "shard 2: replaced", command.ExitReplaced},
		"any error":       {&third, errors.New("no hosts"), "shard 2: no hosts", command.ExitFailed},
		"all was said":    {&third, &command.ExitError{Code: command.ExitSomeFailed}, "exit code 3", command.ExitSomeFailed},
		"the whole fleet": {nil, errors.New("no hosts"), "no hosts", command.ExitFailed},
	} {
		err := Config{Own: row.own}.Named(row.err)
		require.Equal(t, row.code, command.ExitCode(err), name)
		if row.err != nil {
			require.EqualError(t, err, row.want, name)
		}
	}
}
