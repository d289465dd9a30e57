package enforcement

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// A memory that can't be written is logged when that begins, when the reason changes and when it is over.
func TestAMemoryThatIsNotWritten(t *testing.T) {
	space := &etcd.MemberError{Code: 8, Message: "mvcc: database space exceeded"}
	silent := errors.New("etcd doesn't answer: 127.0.0.1:2379: connection refused")
	late := fmt.Errorf("etcd doesn't answer: %w", context.DeadlineExceeded)
	for name, row := range map[string]struct {
		errors []error // one each second
		want   []string
	}{
		"it is written":        {[]error{nil, nil}, nil},
		"etcd is full":         {[]error{nil, space, space, space, nil, nil}, []string{"database space exceeded; etcdctl compact REVISION; etcdctl alarm disarm", "again, after 3s"}},
		"etcd doesn't answer":  {[]error{silent, late, silent, nil}, []string{"connection refused; etcdctl endpoint health", "again, after 3s"}},
		"it is slow":           {[]error{late, nil}, []string{"etcd doesn't answer: no answer", "again, after 1s"}},
		"the lease ends":       {[]error{etcd.ErrConflict, etcd.ErrConflict, nil}, nil},
		"and before, an error": {[]error{silent, etcd.ErrConflict, silent, nil}, []string{"connection refused", "again, after 3s"}},
		"another reason":       {[]error{space, silent, nil}, []string{"database space exceeded", "connection refused", "again, after 2s"}},
		"too large":            {[]error{statedir.ErrTooLarge, statedir.ErrTooLarge, nil}, []string{"it is too large for etcd", "again, after 2s"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &loop{program: &command.Program{Now: time.Now}, part: electedPart(t, &store{entries: map[string]etcd.KeyValue{}})}
			var log bytes.Buffer
			l.log = zerolog.New(&log)
			for _, err := range row.errors {
				if err != nil {
					err = &statedir.NotSharedError{Err: err}
				}
				l.saved(err)
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

// A controller ends when most hosts say that it was replaced, and not because some say so.
func TestReplaced(t *testing.T) {
	answered := snapshot.Host{Snapshot: &snapshot.Snapshot{}}
	down := snapshot.Host{Err: remote.Errorf(remote.Unreachable, "no route")}
	refused := snapshot.Host{Err: remote.Errorf(remote.Replaced, "the host says: refused: replaced by b: %w", agent.ErrLater)}
	for name, row := range map[string]struct {
		hosts []snapshot.Host
		ends  bool
	}{
		"the only host":               {[]snapshot.Host{refused}, true},
		"most hosts":                  {[]snapshot.Host{refused, answered, refused}, true},
		"most hosts, one is down":     {[]snapshot.Host{refused, down, refused}, true},
		"the only one that answers":   {[]snapshot.Host{down, refused, down}, false},
		"half of them":                {[]snapshot.Host{refused, answered}, false},
		"one of many, which may lie":  {[]snapshot.Host{answered, refused, answered}, false},
		"hosts that failed otherwise": {[]snapshot.Host{down, down, answered}, false},
		"no host":                     {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := new(loop)
			err := l.replaced(&controller.Cycle{Cluster: snapshot.Cluster{Hosts: row.hosts}})
			if !row.ends {
				require.NoError(t, err)
				return
			}
			require.Equal(t, command.ExitReplaced, command.ExitCode(err))
			require.ErrorContains(t, err, "replaced by b")
			require.ErrorContains(t, err, "--take-over")
		})
	}
}

// A loop doesn't act under an id that no later start would have. A single cycle asks for no lease.
func TestAnIDThatCantBeRead(t *testing.T) {
	dir := t.TempDir()
	store := proctest.Try(statedir.Open(dir)).OK(t)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	first := proctest.Try(identityOf(t.Context(), store, true)).OK(t)
	require.Equal(t, first.ID, proctest.Try(identityOf(t.Context(), store, true)).OK(t).ID)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "controller-id"), []byte("x"), 0o600))
	require.ErrorContains(t, proctest.Try(identityOf(t.Context(), store, true)).Err, "controller-id is damaged")
	require.NotEmpty(t, proctest.Try(identityOf(t.Context(), store, false)).OK(t).ID)
}

func TestLease(t *testing.T) {
	long := runIdentity{ID: strings.Repeat("I", 26), Hostname: strings.Repeat("h", 64), Person: strings.Repeat("ä", 200), PID: 4194304, Start: "s"}
	store := proctest.Try(statedir.Open(t.TempDir())).OK(t)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	options := &Options{}
	lease := proctest.Try(leaseOf(store, options, &long)).OK(t)
	require.Nil(t, lease, "a single cycle")

	options.Interval = time.Second
	lease = proctest.Try(leaseOf(store, options, &long)).OK(t)
	require.NoError(t, lease.Check(), "hosts accept it, whatever the names")
	require.EqualValues(t, 1, lease.Epoch)
	require.Equal(t, "s", lease.Start)
	lease = proctest.Try(leaseOf(nil, options, &long)).OK(t)
	require.Equal(t, fence.Run(long.ID), lease.Who, "hosts refuse it, or let it act, and give it no lease")

	options.TakeOver = true
	_, err := leaseOf(nil, options, &long)
	require.ErrorContains(t, err, "needs a state folder", "hosts could not know it again")
	lease = proctest.Try(leaseOf(store, options, &long)).OK(t)
	require.True(t, lease.TakeOver)
	require.EqualValues(t, 2, lease.Epoch)
}

// A run that ends before its first cycle, here since a single cycle takes no host over, leaves what its folder has.
func TestARunThatDoesNotBegin(t *testing.T) {
	dir := t.TempDir()
	store := proctest.Try(statedir.Open(dir)).OK(t)
	held := operator.State{Hold: &operator.OnHold{By: "ann", Reason: "a new driver"}}
	require.NoError(t, store.KeepOperator(held, time.Now()))
	require.NoError(t, store.Close())
	options := Options{Policy: policy.Default(), TakeOver: true, StateDir: dir, Announce: func(string, *fence.LeaseRequest) {}}
	program := &command.Program{Now: time.Now, Getenv: func(string) string { return "" }, Out: io.Discard, Err: io.Discard}
	require.ErrorContains(t, newLoop(program, zerolog.Nop(), &options, nil).run(t.Context(), options), "a single cycle")
	store = proctest.Try(statedir.Open(dir)).OK(t)
	defer store.Close()
	require.NotNil(t, proctest.Try(store.LoadOperator(time.Now())).OK(t).Hold)
}
