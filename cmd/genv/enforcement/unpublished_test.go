package enforcement

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// The memory can't be written for a while: that is logged when it begins, when the reason changes and when it
// is over, and not each cycle.
func TestAMemoryThatIsNotWritten(t *testing.T) {
	space := &etcd.Error{Code: 8, Message: "mvcc: database space exceeded"}
	silent := errors.New("etcd doesn't answer: 127.0.0.1:2379: connection refused")
	late := fmt.Errorf("etcd doesn't answer: %w", context.DeadlineExceeded)
	parts := func(n int) error { return fmt.Errorf("%d parts %w", n, errTooLong) }
	for name, row := range map[string]struct {
		errors []error // one each second
		want   []string
	}{
		"it is written":        {[]error{nil, nil}, nil},
		"etcd is full":         {[]error{nil, space, space, space, nil, nil}, []string{"database space exceeded; etcdctl compact REVISION; etcdctl alarm disarm", "again, after 3s"}},
		"etcd doesn't answer":  {[]error{silent, late, silent, nil}, []string{"connection refused; etcdctl endpoint health", "again, after 3s"}},
		"it is slow":           {[]error{late, nil}, []string{"etcd doesn't answer: no answer", "again, after 1s"}},
		"the lease ends":       {[]error{errNotPublished, errNotPublished, nil}, nil},
		"and before, an error": {[]error{silent, errNotPublished, silent, nil}, []string{"connection refused", "again, after 3s"}},
		"another reason":       {[]error{space, silent, nil}, []string{"database space exceeded", "connection refused", "again, after 2s"}},
		"too large":            {[]error{parts(2), parts(3), nil}, []string{"2 parts too large for etcd", "again, after 2s"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &loop{program: &command.Program{Now: time.Now}, part: electedPart(t, &store{entries: map[string]etcd.Entry{}})}
			var log bytes.Buffer
			l.log = zerolog.New(&log)
			for _, err := range row.errors {
				l.sayUnpublished(err)
				time.Sleep(time.Second)
			}
			lines := slices.Collect(strings.Lines(log.String()))
			require.Len(t, lines, len(row.want), "%s: %s", name, &log)
			for i, want := range row.want {
				for part := range strings.SplitSeq(want, "; ") {
					require.Contains(t, lines[i], part, name)
				}
				require.NotContains(t, lines[i], "context deadline exceeded", name)
			}
		})
	}
}

// A leader says of its own term alone that the memory is written again.
func TestAnotherTermOfALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{entries: map[string]etcd.Entry{}}
		l := &loop{program: &command.Program{Now: time.Now}, part: electedPart(t, s)}
		var log bytes.Buffer
		l.log = zerolog.New(&log)
		l.sayUnpublished(context.DeadlineExceeded)
		require.NoError(t, s.Revoke(t.Context(), 1))
		time.Sleep(time.Minute)
		l.sayUnpublished(nil)
		require.NotContains(t, log.String(), "again, after")
	})
}
