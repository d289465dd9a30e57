package guard

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
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
	in, err := cmd.StdinPipe()
	require.NoError(s, err)
	out, err := cmd.StdoutPipe()
	require.NoError(s, err)
	require.NoError(s, cmd.Start())
	c := &stream{site: s, cmd: cmd, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
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
	body, err := json.Marshal(request)
	require.NoError(c, err)
	ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
	defer cancel()
	reply, err := c.Call(ctx, name, body)
	require.NoError(c, err)
	require.NoError(c, json.Unmarshal(reply, answer))
}

func asked(m guard.Mode, lease time.Duration) agent.GuardRequest {
	return agent.GuardRequest{ID: agent.GuardPrefix + "c1", Order: guard.Order{Mode: m, Lease: lease, By: "genv remote enforce"}}
}

// TestAControllerGuardsAHost: from the order over the stream to the kernel and back, and
// what is left when the controller is gone.
func TestAControllerGuardsAHost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.person(alice).activate(), s.person(bob)
	a.attach(0)
	c := s.serve()
	require.True(t, b.opens(0))
	c.order(asked(guard.Enforce, 2*time.Second))
	b.until("denied", 0)
	require.True(t, a.opens(0))

	r := asked(guard.Enforce, 2*time.Second)
	var answer agent.GuardAnswer
	require.Eventually(t, func() bool {
		answer = c.order(r)
		return answer.State.Mode == guard.Enforce && answer.State.Denied > 0
	}, 5*time.Second, 50*time.Millisecond)
	require.Positive(t, answer.State.LeftMS)
	for range 5 { // it is renewed for longer than its lease
		c.order(r)
		time.Sleep(500 * time.Millisecond)
		require.False(t, b.opens(1))
	}

	c.kill() // the stream breaks, with everything at the other end
	require.False(t, b.opens(0), "the lease holds")
	begun := time.Now()
	b.until("allowed", 0)
	require.Less(t, time.Since(begun), 4*time.Second)

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
	t.Parallel()
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
		require.Eventually(t, func() bool { return s.document().Order.Mode == guard.Off }, 5*time.Second, 10*time.Millisecond, name)
		for range 10 {
			answer := c.order(asked(guard.Enforce, time.Minute))
			require.Contains(t, answer.State.Reason, "turned off by "+off.by)
			require.True(t, b.opens(0), name)
		}
		out := s.must("guard", "resume")
		require.Contains(t, out, "may turn the guard on again")
		require.True(t, b.opens(0), "nothing has ordered it yet")
	}
	require.Contains(t, s.must("guard", "resume"), "was not turned off")
	c.order(asked(guard.Enforce, time.Minute))
	b.until("denied", 0)
	require.Contains(t, s.must("guard", "resume"), "was not turned off")
	require.False(t, b.opens(0))
	out, err := s.genvAs(bob, "guard", "resume")
	require.Error(t, err)
	require.Contains(t, out, "only root")
}

// TestTheVetoHoldsAgainstAController: root of the host has the last word.
func TestTheVetoHoldsAgainstAController(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, c := s.person(bob), s.serve()
	c.order(asked(guard.Enforce, time.Minute))
	b.until("denied", 0)
	s.must("guard", "off", "--veto")
	b.until("allowed", 0)
	require.Eventually(t, func() bool {
		return strings.Contains(c.order(asked(guard.Enforce, time.Minute)).State.Reason, "guard.off exists")
	}, 5*time.Second, 50*time.Millisecond)
	require.True(t, b.opens(0))
	require.Contains(t, s.must("guard", "resume"), "sudo rm "+filepath.Join(s.root, "etc/guard.off"))
	require.NoError(t, os.Remove(filepath.Join(s.root, "etc/guard.off")))
	c.order(asked(guard.Enforce, time.Minute))
	b.until("denied", 0) // the file was all
}
