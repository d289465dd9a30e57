package text_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/text"
)

func TestLate(t *testing.T) {
	refused := errors.New("connection refused")
	for _, tt := range []struct {
		err    error
		within time.Duration
		want   string
	}{
		{context.DeadlineExceeded, 5 * time.Second, "no answer within 5s"},
		{context.DeadlineExceeded, 0, "no answer in time"},
		{fmt.Errorf("ask: %w (after)", context.DeadlineExceeded), 90 * time.Second, "ask: no answer within 1m30s (after)"},
		{fmt.Errorf("read: %w", os.ErrDeadlineExceeded), time.Second, "read: no answer within 1s"},
		{errors.New("the host says: context deadline exceeded"), 0, "the host says: no answer in time"},
		{refused, time.Second, "connection refused"},
		{context.Canceled, time.Second, "context canceled"},
	} {
		got := text.Late(tt.err, tt.within)
		require.EqualError(t, got, tt.want)
		require.ErrorIs(t, got, tt.err)
	}
	require.NoError(t, text.Late(nil, time.Second))
	require.Same(t, refused, text.Late(refused, time.Second)) //nolint:testifylint // it is the same error
}
