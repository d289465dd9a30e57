package guard

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// count is how many opens a list has.
func count(l Denials) (n uint64) {
	for i := range l.Denials {
		n += l.Denials[i].Count
	}
	return n
}

func TestDenialsAreKept(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.give(Enforce, time.Minute)
	etc := h.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(etc, "passwd"), []byte("bob:x:4002:1::/:/bin/sh\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(etc, "subuid"), []byte("bob:100000:10\n"), 0o644))
	k := h.keeper()
	k.Accounts = &proc.Accounts{Etc: etc}
	require.Equal(t, bob, k.Accounts.Resolve(t.Context(), 100007))
	stop := h.keep(k)
	h.soon("a denial", h.mayNot(bob, 0))
	h.says(Enforce)
	for _, uid := range []snapshot.UID{bob, bob, 100007} { // a subordinate one
		h.events <- Event{Kind: Denied, UID: uid, PID: snapshot.PID(os.Getpid()), Minor: 3}
	}
	h.events <- Event{Kind: Opened, UID: bob, Minor: 3}
	h.events <- Event{Kind: WouldDeny, UID: bob, Minor: 0}
	h.soon("the list", func() bool { l, err := ReadDenials(h.run); return err == nil && count(l) == 4 })
	l, err := ReadDenials(h.run)
	require.NoError(t, err)
	require.Len(t, l.Denials, 2)
	require.EqualValues(t, 3, l.Denials[0].Count)
	require.Equal(t, snapshot.DeviceIndex(0), *l.Denials[0].Index, "the index, not the minor")
	require.Equal(t, snapshot.GPUUUID("GPU-0"), l.Denials[0].UUID)
	require.NotEmpty(t, l.Denials[0].Name)
	require.True(t, l.Denials[0].Subordinate && !l.Denials[1].Subordinate)
	require.False(t, l.Denials[1].Denied)
	h.soon("both are passed on", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.denied) == 2 })
	stop()
	h.keep(h.keeper())
	h.soon("another Keeper", func() bool { h.pins.mu.Lock(); defer h.pins.mu.Unlock(); return h.owner != nil })
	h.events <- Event{Kind: Denied, UID: alice, Minor: 3}
	h.soon("the list goes on", func() bool { l, err := ReadDenials(h.run); return err == nil && count(l) == 5 })
}

// What was denied right before the end is in the list when the keeper has ended.
func TestDenialsOfTheLastMoment(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.give(Enforce, time.Minute)
	stop := h.keep(h.keeper())
	h.soon("a denial", h.mayNot(bob, 0))
	h.events <- Event{Kind: Denied, UID: bob, PID: 41, Minor: 3}
	h.soon("it is passed on", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.denied) == 1 })
	stop()
	l, err := ReadDenials(h.run)
	require.NoError(t, err)
	require.EqualValues(t, 1, count(l))
}

// TestOpensAreReported: those that were not denied, for those who wait for a reason to look.
func TestOpensAreReported(t *testing.T) {
	h := newHost(t)
	h.write(map[snapshot.UID][]snapshot.DeviceIndex{alice: {0}})
	require.NoError(t, os.MkdirAll(h.run, 0o755))
	r := watch.NewOpenLogReader(h.run)
	h.give(Enforce, time.Minute)
	h.keep(h.keeper())
	h.soon("bob may not open device 0", h.mayNot(bob, 0))
	h.events <- Event{Kind: Denied, UID: bob, PID: 41, Minor: 3}
	h.events <- Event{Kind: Opened, UID: 0, PID: 0, Minor: 3} // of a look's nvidia-smi, perhaps
	for _, e := range []Event{
		{Kind: Opened, UID: alice, PID: 42, Minor: 3},
		{Kind: Opened, UID: 0, PID: 43, Minor: 3},
		{Kind: WouldDeny, UID: bob, PID: 44, Minor: 3},
		{Kind: Opened, UID: alice, PID: 0, Minor: 3},
	} {
		h.events <- e
	}
	var pids []snapshot.PID
	h.soon("the opens are in the file", func() bool {
		more, err := r.Next()
		require.NoError(t, err)
		pids = append(pids, more...)
		return len(pids) >= 4
	})
	require.Equal(t, []snapshot.PID{42, 43, 44, 0}, pids)
}
