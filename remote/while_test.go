package remote_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

func TestWhile(t *testing.T) {
	var over error
	ctx := remote.While(t.Context(), func() error { return over })
	require.NoError(t, remote.MayBegin(ctx))
	over = errors.New("over")
	require.Equal(t, over, remote.MayBegin(ctx))
	require.Equal(t, over, remote.MayBegin(context.WithoutCancel(ctx)), "also for what outlasts the run")
	require.NoError(t, remote.MayBegin(t.Context()), "without a condition")
}
