package remote_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

func TestEveryClassHasItsNextStep(t *testing.T) {
	seen := map[string]remote.Class{}
	for _, class := range []remote.Class{
		remote.Unreachable, remote.HostKey, remote.HostKeyChanged, remote.Auth, remote.Sudo, remote.SudoRefused, remote.GenvMissing, remote.Version,
		remote.InvalidOutput, remote.Timeout, remote.OutcomeUnknown, remote.CommandFailed, remote.Configuration, remote.Cancelled,
	} {
		step := class.NextStep()
		require.NotEmpty(t, step, class)
		require.NotContains(t, step, "\n", class)
		require.Empty(t, seen[step], "%s and %s say the same", class, seen[step])
		seen[step] = class
	}
	require.Empty(t, remote.Class("no such class").NextStep())
}

func TestClassOf(t *testing.T) {
	refused := remote.Errorf(remote.Auth, "gpu-1: %w", io.EOF)
	require.Equal(t, remote.Auth, remote.ClassOf(refused))
	require.Equal(t, remote.Auth, remote.ClassOf(fmt.Errorf("cycle 3: %w", refused)))
	require.Equal(t, remote.Unreachable, remote.ClassOf(remote.Errorf(remote.Unreachable, "by way of the jump host: %w", refused)), "the outermost counts")
	require.Equal(t, remote.CommandFailed, remote.ClassOf(errors.New("never classified")))
}

func TestErrorKeepsItsCause(t *testing.T) {
	err := error(remote.Errorf(remote.Unreachable, "gpu-1: %w", io.EOF))
	require.EqualError(t, err, "gpu-1: EOF")
	require.ErrorIs(t, err, io.EOF)
}
