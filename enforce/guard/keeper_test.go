package guard

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
)

type attachments = map[snapshot.UID][]snapshot.DeviceIndex

func TestAKeeperFollowsTheStateFiles(t *testing.T) {
	t.Parallel()
	h := newGuarded(t)
	require.True(t, h.pins.may(alice, 3), "by minor, not by index")
	require.False(t, h.pins.may(alice, 0))
	require.True(t, h.pins.may(0, 0), "root is never denied")
	require.True(t, h.pins.may(999, 0))

	begun := time.Now()
	h.write(attachments{alice: {0}, bob: {1}})
	h.soon("Bob's device", h.may(bob, 1))
	require.Less(t, time.Since(begun), 2*time.Second)
	t.Logf("an attachment counts after %v", time.Since(begun))
	h.write(attachments{bob: {1}})
	h.soon("no device for Alice", h.mayNot(alice, 0))
	require.True(t, h.pins.may(bob, 2))

	s := h.says(Enforce)
	require.Len(t, s.Devices, 4)
	require.Equal(t, 3, *s.Devices[0].Minor)
	require.NotEmpty(t, s.Keeper)
	h.soon("who may open what", func() bool {
		s = h.status()
		return len(s.Users) == 1 && s.Users[0].UID == bob && s.Users[0].Devices[0] == 1
	})
	require.WithinDuration(t, time.Now().Add(time.Minute), s.Until, 30*time.Second)
}

// newGuarded is a host with a Keeper that lets Alice open device 0 and denies everything else.
func newGuarded(t testing.TB) *host {
	t.Helper()
	h := newHost(t)
	h.write(attachments{alice: {0}})
	h.deny(time.Minute)
	h.says(Enforce) // it is written after the kernel was told
	return h
}

func TestTheFolderMayBeRemovedAndMadeAgain(t *testing.T) {
	t.Parallel()
	h := newGuarded(t)
	for os.RemoveAll(h.state) != nil { // the Keeper may be writing into it
		time.Sleep(time.Millisecond)
	}
	h.write(attachments{alice: {0}, bob: {1}})
	h.soon("the new folder", h.may(bob, 1))
	require.NoError(t, os.Rename(h.state, h.state+".old"))
	h.write(attachments{alice: {2}})
	h.soon("a folder in its place", h.may(alice, 2))
	h.soon("what isn't there any more", h.mayNot(bob, 1))
}

// TestWritesInPlace: 1.4.3 truncates a file, and writes it bit by bit.
func TestWritesInPlace(t *testing.T) {
	t.Parallel()
	h := newGuarded(t)
	files := h.files(attachments{alice: {0}, bob: {1}})
	for _, file := range []state.File{state.Envs, state.Devices} {
		data := proctest.Try(files.Encode(file)).OK(t)
		f := proctest.Try(os.OpenFile(filepath.Join(h.state, file.String()), os.O_WRONLY|os.O_TRUNC, 0)).OK(t)
		for i := 0; i < len(data); i += 100 {
			proctest.Try(f.Write(data[i:min(i+100, len(data))])).OK(t)
			time.Sleep(time.Millisecond)
			require.True(t, h.pins.may(alice, 3), "a half file takes nothing away")
		}
		require.NoError(t, f.Close())
	}
	h.soon("Bob's device", h.may(bob, 1))
}

func TestALeaseEndsByItselfWithoutItsKeeper(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, stop := h.deny(2 * time.Second)
	stop()
	require.False(t, h.pins.may(bob, 3), "a Keeper that ends leaves the guard")
	h.soon("the end of the lease", h.may(bob, 0))
	s := h.status()
	require.Equal(t, Off, s.Now(time.Now()))
}

func TestAnOrderThatIsNotGivenAgainEnds(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	g, _ := h.deny(2 * time.Second)
	for range 3 { // given again, it goes on
		time.Sleep(time.Second)
		require.False(t, h.pins.may(bob, 3))
		now := proctest.Try(Now()).OK(t)
		g = proctest.Try(RenewOrder(h.run, g, now)).OK(t)
	}
	h.soon("its end", h.may(bob, 0))
	require.Contains(t, h.says(Off).Reason, "time of its last order has ended")
	h.give(Enforce, time.Minute)
	h.soon("the next order", h.mayNot(bob, 0))
}

// TestTheKernelGetsAMinuteAtMost: an order may hold for a day, a dead Keeper's list may not.
func TestTheKernelGetsAMinuteAtMost(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.deny(24 * time.Hour)
	h.pins.mu.Lock()
	defer h.pins.mu.Unlock()
	require.WithinDuration(t, time.Now().Add(time.Minute), h.until, 5*time.Second)
}

func TestTakeOver(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write(attachments{alice: {0}})
	h.give(Enforce, time.Minute)
	first := h.keeper()
	stop := h.keep(first)
	h.soon("the first denial", h.mayNot(bob, 0))

	waits := make(chan struct{})
	second := h.keeper()
	second.Waiting = func(error) { close(waits) }
	h.set(func() { h.readErr = errors.New("the second can't read the state files") })
	h.keep(second)
	<-waits
	stop()
	require.False(t, h.pins.may(bob, 3))
	h.soon("the second has it", func() bool { h.pins.mu.Lock(); defer h.pins.mu.Unlock(); return h.owner != nil })
	time.Sleep(50 * time.Millisecond)
	require.True(t, h.pins.may(alice, 3), "what was allowed stays allowed")
	require.False(t, h.pins.may(bob, 3), "and the rest denied")
	h.soon("it says so", func() bool { s := h.status(); return len(s.Problems) > 0 })
	h.set(func() { h.readErr = nil })
	h.write(attachments{bob: {0}})
	h.soon("the second follows", func() bool { return h.pins.may(bob, 3) && !h.pins.may(alice, 3) })
}

func TestVetoAndOff(t *testing.T) {
	t.Parallel()
	h := newGuarded(t)
	require.NoError(t, os.WriteFile(h.veto, nil, 0o600))
	h.soon("the veto", h.may(bob, 0))
	s := h.says(Off)
	require.True(t, s.Veto)
	require.Contains(t, s.Reason, h.veto)
	require.False(t, h.isAttached())
	h.give(Enforce, time.Minute)
	time.Sleep(20 * time.Millisecond)
	require.True(t, h.pins.may(bob, 3), "it is stronger than orders")
	require.NoError(t, os.Remove(h.veto))
	h.soon("the end of the veto", h.mayNot(bob, 0))
	h.give(Off, 0)
	h.soon("off", h.may(bob, 0))
	require.Contains(t, h.says(Off).Reason, "the test")
	require.False(t, h.isAttached())
	h.give(Watch, time.Minute)
	h.says(Watch)
	require.True(t, h.pins.may(bob, 3))
}

func (p *pins) isAttached() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.attached }

// TestRemovedByHand: that is the same as off, until the next order.
func TestRemovedByHand(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	mine, _ := h.deny(time.Minute)
	h.says(Enforce)
	require.NoError(t, h.remove())
	require.Contains(t, h.says(Off).Reason, "by hand")
	now := proctest.Try(Now()).OK(t)
	require.ErrorIs(t, proctest.Try(RenewOrder(h.run, mine, now)).Err, ErrReplaced, "whoever gave the order learns it")
	time.Sleep(1100 * time.Millisecond)
	require.False(t, h.isAttached())
	h.give(Enforce, time.Minute)
	h.soon("the next order", h.mayNot(bob, 0))
}

// TestRemovedAlongWithAVetoOrAnOrder: the Keeper may notice the removal first. It gives no order
// of its own then, since that would outlast the veto.
func TestRemovedAlongWithAVetoOrAnOrder(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(h *host)
		reason string
		holds  Mode // of the order
	}{
		"veto": {func(h *host) { require.NoError(h, os.WriteFile(h.veto, nil, 0o600)) }, "guard.off exists", Enforce},
		"off":  {func(h *host) { h.give(Off, 0) }, "turned off by the test", Off},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newGuarded(t)
			h.pins.mu.Lock()
			h.renewing = func() { tt.change(h); _ = h.remove() }
			h.pins.mu.Unlock()
			require.Contains(t, h.says(Off).Reason, tt.reason)
			given := proctest.Try(ReadOrder(h.run)).OK(t)
			require.Equal(t, tt.holds, given.Mode)
			require.Equal(t, "the test", given.By)
		})
	}
}

// TestDoubtTakesNothingAway: what was allowed stays allowed, and more can be.
func TestDoubtTakesNothingAway(t *testing.T) {
	t.Parallel()
	for name, doubt := range map[string]func(h *host){
		"corrupt":           func(h *host) { h.readErr = errors.New("corrupt") },
		"another namespace": func(h *host) { h.doubt = func(f *state.Files) { f.LivenessUnknown = true } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newGuarded(t)
			h.set(func() { doubt(h) })
			h.write(attachments{bob: {1}})
			h.soon("Bob's new attachment", h.may(bob, 1))
			h.soon("it says so", func() bool { return len(h.status().Problems) > 0 })
			require.True(t, h.pins.may(alice, 3), "she keeps her device")
			require.False(t, h.pins.may(bob, 3), "there is a guard")
			h.set(func() { h.doubt, h.readErr = nil, nil })
			h.write(attachments{bob: {1, 2}})
			h.soon("no doubt", h.mayNot(alice, 0))
			h.soon("no problem", func() bool { return len(h.status().Problems) == 0 })
		})
	}
}

// TestWhereTheStateIsUnknown: what a folder says that may be any user's gives and takes nothing.
func TestWhereTheStateIsUnknown(t *testing.T) {
	t.Parallel()
	h := newGuarded(t)
	h.set(func() { h.placeErr = errors.New("input/output error") })
	h.write(attachments{bob: {0, 1}})
	h.soon("it says so", func() bool { return len(h.status().Problems) > 0 })
	require.True(t, h.pins.may(alice, 3), "she keeps her device")
	require.False(t, h.pins.may(bob, 3))
	require.False(t, h.pins.may(bob, 2))
	h.set(func() { h.placeErr = nil })
	h.soon("it follows again", func() bool { return h.pins.may(bob, 3) && !h.pins.may(alice, 3) })
}

// TestNothingIsDeniedBeforeAnythingIsKnown: a Keeper that begins in doubt may not deny.
func TestNothingIsDeniedBeforeAnythingIsKnown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		doubt  func(h *host)
		says   Mode
		denies bool
	}{
		"corrupt": {func(h *host) { h.readErr = errors.New("corrupt") }, Off, false},
		"hangs":   {func(h *host) { h.hang = make(chan struct{}) }, Off, false},
		"another namespace has what is registered": {func(h *host) { h.doubt = func(f *state.Files) { f.LivenessUnknown = true } }, Enforce, true},
		"no devices":     {func(h *host) { h.minors = nil }, Enforce, false},
		"too many users": {func(h *host) { h.fullErr = ErrFull }, Watch, false},
		"no guard":       {func(h *host) { h.openErr = errors.New("not supported") }, Off, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			tt.doubt(h)
			h.write(attachments{alice: {0}})
			h.give(Enforce, time.Minute)
			h.keep(h.keeper())
			s := h.says(tt.says)
			require.NotEqual(t, tt.denies, s.Reason != "" || len(s.Problems) > 0 && name != "another namespace has what is registered", "%+v", s)
			if tt.denies {
				h.soon("a denial", h.mayNot(bob, 0))
			} else {
				time.Sleep(30 * time.Millisecond)
				require.True(t, h.pins.may(bob, 3))
			}
			require.True(t, h.pins.may(alice, 3))
		})
	}
}

// TestWhatHangsHoldsNothingUp: a look that never ends doesn't keep an attachment waiting.
func TestWhatHangsHoldsNothingUp(t *testing.T) {
	t.Parallel()
	h := newGuarded(t)
	h.set(func() { h.hang = make(chan struct{}) })
	h.write(attachments{bob: {1}})
	h.soon("Bob's device", h.may(bob, 1))
	require.True(t, h.pins.may(alice, 3), "a glance takes nothing away at once")
	h.give(Off, 0)
	h.soon("off", func() bool { return !h.isAttached() })
}

// TestALateLookTakesAway: what a user can delay, such as reading a process, keeps no attachment that is gone.
func TestALateLookTakesAway(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		owned bool
		begin attachments // before the Keeper begins; nil if looks hang only later
		then  attachments
		away  bool // alice's device 0
	}{
		"detached":             {then: attachments{alice: nil, bob: {0}}, away: true},
		"her environment ends": {then: attachments{bob: {0}}, away: true},
		"still attached":       {then: attachments{alice: {0}, bob: {0}}},
		"emptied":              {then: attachments{}},
		"emptied by root":      {owned: true, then: attachments{}, away: true},
		"before the first look, of which users may forge the files": {begin: attachments{bob: {0}}},
		"before the first look, of root's files":                    {owned: true, begin: attachments{bob: {0}}, away: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			h.owned = tt.owned
			if tt.begin != nil {
				h.hang = make(chan struct{})
				h.write(tt.begin)
				h.give(Enforce, time.Minute)
				h.keep(h.keeper())
			} else {
				h.write(attachments{alice: {0}})
				h.deny(time.Minute)
				h.set(func() { h.hang = make(chan struct{}) })
				h.write(tt.then)
			}
			if tt.away {
				h.soon("it is taken away", h.mayNot(alice, 0))
				return
			}
			time.Sleep(lateAfter + 2*tick)
			require.True(t, h.pins.may(alice, 3))
		})
	}
}

func TestOnlyRootMayWriteTheState(t *testing.T) {
	t.Parallel()
	for _, owned := range []bool{false, true} {
		h := newHost(t)
		h.owned = owned
		h.set(func() { h.owners = map[snapshot.PID]snapshot.UID{101: bob} })
		h.write(attachments{alice: {0}})
		_, stop := h.deny(time.Minute)
		h.says(Enforce)
		require.Equal(t, owned, h.pins.may(alice, 3), "without a process of hers, only root's word counts")
		stop()
	}
}
