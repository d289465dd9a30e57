package remote_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

func TestOutlasting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := errors.New("over")
		ctx, end := context.WithCancelCause(t.Context())
		longer, cancel := remote.Outlasting(ctx, 2*time.Second)
		defer cancel()
		other, cancelOther := remote.Outlasting(ctx, time.Hour)
		time.Sleep(time.Minute)
		require.NoError(t, longer.Err())

		begun := time.Now()
		end(over)
		require.NoError(t, longer.Err())
		<-longer.Done()
		require.Equal(t, 2*time.Second, time.Since(begun))
		require.Equal(t, over, context.Cause(longer))
		require.NoError(t, other.Err())
		cancelOther()
		require.ErrorIs(t, other.Err(), context.Canceled)
	})
}
