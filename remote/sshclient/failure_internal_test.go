package sshclient

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

func TestStopped(t *testing.T) {
	for cause, want := range map[error]string{
		context.DeadlineExceeded:  "a: no answer in time",
		errTimeout{1}:             "a: " + errTimeout{1}.Error(),
		errors.New("interrupted"): "a: stopped: interrupted",
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		err := stopped(ctx, "a")
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, cause)
		require.Equal(t, errors.Is(cause, context.DeadlineExceeded), err.Class == remote.Timeout)
	}
}
