package agent

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

// The end of a stream is classified alike by the call that ended it, with its own
// context, and by the notice that it has ended, which has none.
func TestClassify(t *testing.T) {
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, tt := range map[string]struct {
		ctx  context.Context
		err  error
		want remote.Class
	}{
		"deadline of the call":      {late, context.DeadlineExceeded, remote.Timeout},
		"deadline, seen afterwards": {t.Context(), fmt.Errorf("x: %w", context.DeadlineExceeded), remote.Timeout},
		"cancelled call":            {stopped, context.Canceled, remote.Cancelled},
		"cancelled, seen later":     {t.Context(), context.Canceled, remote.Cancelled},
		"garbled answer":            {t.Context(), ErrProtocol, remote.InvalidOutput},
		"refused":                   {t.Context(), ErrRefused, remote.CommandFailed},
		"another version":           {t.Context(), ErrVersion, remote.Version},
		"a known error":             {late, remote.Errorf(remote.Auth, "no key"), remote.Auth},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, remote.ClassOf(classify(tt.ctx, tt.err)))
		})
	}
}
