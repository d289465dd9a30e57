package agent

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
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

// The next step of a refusal is one for this controller: with --leader, or with a state folder.
func TestNextStepOfARefusal(t *testing.T) {
	folder := &fence.Claim{Source: fence.FolderSource("a")}
	elected := &fence.Claim{Source: fence.ElectionSource(1, "/genv/lab")}
	for name, tt := range map[string]struct {
		refusal fence.RefusedError
		claim   *fence.Claim
		want    string
	}{
		"a later start":                          {fence.RefusedError{}, folder, folderStep},
		"a later leader":                         {fence.RefusedError{}, elected, electedStep},
		"it isn't elected any more":              {fence.RefusedError{}, nil, electedStep},
		"another source":                         {fence.RefusedError{Foreign: true}, elected, remote.Replaced.NextStep()},
		"another election, of which none acts":   {fence.RefusedError{Foreign: true, Ended: true}, elected, endedStep},
		"an election, of which none acts":        {fence.RefusedError{Foreign: true, Ended: true}, folder, endedStep},
		"a name that ends like that, and acts":   {fence.RefusedError{Foreign: true, By: hasEnded}, folder, remote.Replaced.NextStep()},
		"a later start of a claim that released": {fence.RefusedError{Ended: true}, folder, folderStep},
	} {
		err := refusedByHost(fmt.Errorf("%w: %w", ErrRefused, &tt.refusal), tt.claim)
		require.Equal(t, remote.Replaced, remote.ClassOf(err), name)
		require.Equal(t, tt.want, remote.NextStepOf(err), name)
	}
	require.Empty(t, refusedByHost(ErrRefused, folder).Next)
}

// A call that took too long says so in plain words, and is known for what it is.
func TestTimedOut(t *testing.T) {
	for text, err := range map[string]error{
		"no answer in time": context.DeadlineExceeded,
		"no answer in time: the answer is not waited for":         fmt.Errorf("%w: %w", errAbandoned, context.DeadlineExceeded),
		"no answer in time: the host did not read a request":      errNotRead,
		"no answer in time: x: context deadline exceeded (after)": fmt.Errorf("x: %w (after)", context.DeadlineExceeded),
	} {
		classified := classify(t.Context(), err)
		require.EqualError(t, classified, text)
		require.ErrorIs(t, classified, err)
	}
}
