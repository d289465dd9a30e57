package guard

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// stream is a running `genv usage serve`, as a controller has it on a host.
type stream struct {
	*site
	*agent.Stream
	cmd  *exec.Cmd
	done chan struct{}
}

func (s *site) serve() *stream {
	s.Helper()
	cmd := s.command("usage", "serve", "--token", "t")
	log := &testfleet.ProgramOutput{}
	cmd.Stderr = log
	in, out := proctest.StartPiped(s, cmd)
	c := &stream{site: s, cmd: cmd, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	var err error
	c.Stream, err = agent.OpenStream(ctx, out, in, "t")
	go func() { _ = cmd.Wait(); close(c.done) }()
	s.Cleanup(func() {
		c.kill()
		if s.Failed() {
			s.Log(log.String())
		}
	})
	require.NoError(s, err)
	require.True(s, c.Greeting.Can(agent.RequestGuard))
	return c
}

func (c *stream) kill() {
	_ = c.cmd.Process.Signal(syscall.SIGKILL)
	<-c.done
}

// order renews the order of a controller.
func (c *stream) order(r agent.GuardRequest) agent.GuardAnswer {
	c.Helper()
	var answer agent.GuardAnswer
	c.ask(agent.RequestGuard, r, &answer)
	return answer.Bounded()
}

// ask sends a request and reads its answer.
func (c *stream) ask(name string, request, answer any) {
	c.Helper()
	body := proctest.Try(json.Marshal(request)).OK(c)
	ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
	defer cancel()
	reply := proctest.Try(c.Call(ctx, name, body)).OK(c)
	require.NoError(c, json.Unmarshal(reply, answer))
}

func asked(m guard.Mode, lease time.Duration) agent.GuardRequest {
	return agent.GuardRequest{ID: agent.GuardPrefix + "c1", Order: guard.Order{Mode: m, LeaseMS: lease.Milliseconds(), By: "genv remote enforce"}}
}

// TestAControllerGuardsAHost: from the order over the stream to the kernel and back, and
// what is left when the controller is gone.
func TestAControllerGuardsAHost(t *testing.T) {
	s := newSite(t)
	a, b := s.person(alice).activate(), s.person(bob)
	a.attach(0)
	c := s.serve()
	require.True(t, b.opens(0))
	c.order(asked(guard.Enforce, 4*time.Second))
	b.until("denied", 0)
	require.True(t, a.opens(0))

	r := asked(guard.Enforce, 4*time.Second)
	var answer agent.GuardAnswer
	require.Eventually(t, func() bool {
		answer = c.order(r)
		return answer.State.Mode == guard.Enforce && answer.State.Denied > 0
	}, 30*time.Second, 50*time.Millisecond)
	require.Positive(t, answer.State.LeftMS)
	for range 10 { // it is renewed for longer than its lease
		c.order(r)
		time.Sleep(500 * time.Millisecond)
		require.False(t, b.opens(1))
	}

	c.kill() // the stream breaks, with everything at the other end
	require.False(t, b.opens(0), "the lease holds")
	begun := time.Now()
	b.until("allowed", 0)
	require.Less(t, time.Since(begun), 10*time.Second)

	// Another stream takes over, and the policy turns the guard off.
	c = s.serve()
	c.order(asked(guard.Enforce, time.Minute))
	b.until("denied", 0)
	c.order(asked(guard.Off, 0))
	b.until("allowed", 0)
	require.Equal(t, guard.Off, s.document().Mode)
}

// TestOffHoldsAgainstAController: until somebody on the host says otherwise. The controller learns why.
func TestOffHoldsAgainstAController(t *testing.T) {
	s := newSite(t)
	b, c := s.person(bob), s.serve()
	for name, off := range map[string]struct {
		turnOff func()
		by      string
	}{
		"off":     {func() { s.must("guard", "off") }, "root with `genv guard off`"},
		"by hand": {func() { require.NoError(t, os.RemoveAll(s.pins)) }, "removal of its pins by hand"},
	} {
		c.order(asked(guard.Enforce, time.Minute))
		b.until("denied", 0)
		off.turnOff()
		b.until("allowed", 0)
		require.Eventually(t, func() bool { return s.document().Order.Mode == guard.Off }, 30*time.Second, 10*time.Millisecond, name)
		for range 10 {
			require.Contains(t, c.order(asked(guard.Enforce, time.Minute)).State.Reason, "turned off by "+off.by)
			require.True(t, b.opens(0), name)
		}
		require.Contains(t, s.must("guard", "resume"), "may turn the guard on again")
		require.True(t, b.opens(0), "nothing has ordered it yet")
	}
	require.Contains(t, s.must("guard", "resume"), "was not turned off")
	c.order(asked(guard.Enforce, time.Minute))
	b.until("denied", 0)
	require.Contains(t, s.must("guard", "resume"), "was not turned off")
	require.False(t, b.opens(0))
	require.Contains(t, s.failsAs(bob, "guard", "resume"), "only root")
}

// TestTheVetoHoldsAgainstAController: root of the host has the last word.
func TestTheVetoHoldsAgainstAController(t *testing.T) {
	s := newSite(t)
	b, c := s.person(bob), s.serve()
	c.order(asked(guard.Enforce, time.Minute))
	b.until("denied", 0)
	s.must("guard", "off", "--veto")
	b.until("allowed", 0)
	require.Eventually(t, func() bool {
		return strings.Contains(c.order(asked(guard.Enforce, time.Minute)).State.Reason, "guard.off exists")
	}, 30*time.Second, 50*time.Millisecond)
	require.True(t, b.opens(0))
	require.Contains(t, s.must("guard", "resume"), "sudo rm "+filepath.Join(s.root, "etc/guard.off"))
	require.NoError(t, os.Remove(filepath.Join(s.root, "etc/guard.off")))
	c.order(asked(guard.Enforce, time.Minute))
	b.until("denied", 0) // the file was all
}

// listing is an nvidia-smi that shows the four GPUs of a site, which nothing uses.
const listing = `#!/bin/sh
case "$1" in
--query-gpu=*) for i in 0 1 2 3; do echo "$i, GPU-$i, 81920, 3, 0, 31, 70.12, NVIDIA H100"; done ;;
esac
`

// snapshot is what a controller asks of a host in each cycle.
func (c *stream) snapshot() *snapshot.Snapshot {
	c.Helper()
	var answer agent.SnapshotAnswer
	c.ask(agent.RequestSnapshot, agent.SnapshotRequest{}, &answer)
	s := proctest.Try(snapshot.DecodeNative(answer.Snapshot)).OK(c)
	return s
}

// TestASnapshotSaysWhatTheGuardDoes: a real `genv usage serve` reports the guard of the kernel
// below it, and who owns the state.
func TestASnapshotSaysWhatTheGuardDoes(t *testing.T) {
	s := newSite(t)
	require.NoError(t, proctest.WriteProgram(filepath.Join(s.dir, "nvidia-smi"), []byte(listing)))
	b, c := s.person(bob), s.serve()
	says := func(want snapshot.GuardMode, reason string) {
		t.Helper()
		var seen *snapshot.Snapshot
		require.Eventually(t, func() bool {
			seen = c.snapshot()
			return seen.Guard != nil && seen.Guard.Mode == want
		}, 10*time.Second, 50*time.Millisecond, "%s", want)
		require.Contains(t, seen.Guard.Reason, reason)
		require.Len(t, seen.Devices, 4)
	}
	before := c.snapshot()
	require.Equal(t, snapshot.GuardOff, before.Guard.Mode, "nothing has ordered it")
	require.False(t, *before.Service, "every user may write the state")

	c.order(asked(guard.Watch, time.Minute))
	says(snapshot.GuardWatch, "")
	require.True(t, b.opens(0))
	c.order(asked(guard.Enforce, time.Minute))
	b.until("denied", 0)
	says(snapshot.GuardEnforce, "")
	s.must("guard", "off")
	b.until("allowed", 0)
	says(snapshot.GuardOff, "turned off by root")

	s.start("host", "serve")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(s.root, "run", "host.sock"))
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.True(t, *c.snapshot().Service, "the same stream sees that root owns the state now")
}

// reports collects what a reporter does. Users from 100000 have no account.
type reports struct {
	*reporter
	at      time.Time
	mu      sync.Mutex
	records []audit.Record
	notices map[snapshot.UID][]string
}

func newReports() *reports {
	r := &reports{at: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), notices: map[snapshot.UID][]string{}}
	r.reporter = &reporter{
		log: zerolog.New(io.Discard), now: func() time.Time { return r.at }, collect: 20 * time.Millisecond, account: func(uid snapshot.UID) snapshot.UID { return min(uid, 100_000) },
		recorded: map[string]time.Time{}, noticedAt: map[snapshot.UID]time.Time{}, pending: map[snapshot.UID][]guard.Denial{},
		append: func(list ...audit.Record) error {
			r.records = append(r.records, list...)
			return errors.New("the disk is full")
		},
		show: func(uid snapshot.UID, text string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notices[uid] = append(r.notices[uid], text)
		},
	}
	return r
}

func (r *reports) of(uid snapshot.UID) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notices[uid]
}

func denial(uid snapshot.UID, index int) guard.Denial {
	return guard.Denial{UID: uid, Minor: 7 - index, Index: new(snapshot.DeviceIndex(index)), Denied: true, Name: "python"}
}

func TestANoticeComesOncePerMinute(t *testing.T) {
	r := newReports()
	r.denied(denial(1, 3))
	require.Eventually(t, func() bool { return len(r.of(1)) == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, []string{"GPU 3 is not attached to you: genv attach --index 3"}, r.of(1))
	r.at = r.at.Add(59 * time.Second)
	r.denied(denial(1, 2))
	r.denied(denial(2, 4)) // another user
	r.denied(denial(2, 1)) // at the same time
	require.Eventually(t, func() bool { return len(r.of(2)) == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, []string{"GPUs 1,4 are not attached to you: genv attach --index 1, for example"}, r.of(2))
	require.Len(t, r.of(1), 1, "within a minute")
	r.at = r.at.Add(time.Second)
	unknown := denial(1, 2)
	unknown.Index = nil
	r.denied(unknown)
	require.Eventually(t, func() bool { return len(r.of(1)) == 2 }, 10*time.Second, time.Millisecond)
	require.Equal(t, "/dev/nvidia5 is not attached to you: genv gpus", r.of(1)[1])
}

func TestNoNoticeForLookingOrWatching(t *testing.T) {
	r := newReports()
	looks := denial(1, 3)
	looks.Name = "nvidia-smi"
	watched := denial(2, 3)
	watched.Denied = false
	r.denied(looks)
	r.denied(watched)
	r.denied(denial(3, 3))
	require.Eventually(t, func() bool { return len(r.of(3)) == 1 }, 10*time.Second, time.Millisecond)
	require.Empty(t, r.of(1))
	require.Empty(t, r.of(2))
	require.Len(t, r.records, 3, "they are recorded")
	require.Equal(t, audit.ActionWouldDeny, r.records[1].Action)
	require.Equal(t, "GPU 3 is not attached: opening it was denied (program python)", r.records[2].Text)
}

func TestOneUserCannotFillTheRecord(t *testing.T) {
	r := newReports()
	for range 100 {
		r.denied(denial(1, 3))
	}
	require.Len(t, r.records, 1)
	for uid := range snapshot.UID(1000) { // of a user's own user namespaces
		r.denied(denial(100_000+uid, 3))
	}
	require.Len(t, r.records, 2)
	r.at = r.at.Add(time.Second)
	r.denied(denial(2, 3))
	r.denied(denial(1, 2))
	require.Len(t, r.records, 4)
	r.at = r.at.Add(recordEvery)
	r.denied(denial(1, 3))
	require.Len(t, r.records, 5)
}
