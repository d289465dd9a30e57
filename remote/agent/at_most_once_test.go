package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const latest = time.Minute // bounds how late a request arrives that was sent, frozen or resent

// signalled is a line of a host's own record: a process got a signal.
type signalled struct {
	at      time.Time
	process snapshot.PID
	kill    bool
	grace   time.Duration
	order   string
	by      string
}

// victim is a process that breaks a rule on a host.
type victim struct {
	endsAfter time.Duration // after SIGTERM; 0 for never
	ended     time.Time
}

// onceHost is a host: the note, the list and the answers are root's, the processes are
// simulated, and so is the order of the signals, as package local has it.
type onceHost struct {
	note     *fence.LeaseFile
	register *ending.Register

	// noting has room for one who asks the note, and compares the answer with the last one. A
	// goroutine that waits for a mutex would keep the clock of the test from going on.
	noting   chan struct{}
	admitted *fence.LeaseRequest // the last one that was noted

	mu      sync.Mutex
	random  *rand.Rand
	victims map[snapshot.PID]*victim
	record  []signalled
	wrong   []string
}

func newOnceHost(dir string, random *rand.Rand) *onceHost {
	boot := time.Now()
	h := &onceHost{
		note:     &fence.LeaseFile{Path: filepath.Join(dir, "controller.json"), Now: time.Now},
		register: &ending.Register{Path: filepath.Join(dir, "asked.json"), BootID: "b", SinceBoot: func() (time.Duration, error) { return time.Since(boot), nil }},
		noting:   make(chan struct{}, 1), random: random, victims: map[snapshot.PID]*victim{},
	}
	for pid := range snapshot.PID(1 + random.IntN(4)) {
		h.victims[100+pid] = &victim{endsAfter: time.Duration(random.IntN(3)) * 7 * time.Second}
	}
	return h
}

// roll is true once in n times.
func (h *onceHost) roll(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.random.IntN(n) == 0
}

func (h *onceHost) alive(pid snapshot.PID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.victims[pid]
	return v.ended.IsZero() || time.Now().Before(v.ended)
}

func (h *onceHost) fail(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, what)
}

// Admit implements agent.Fence.
func (h *onceHost) Admit(c *fence.LeaseRequest) error {
	h.noting <- struct{}{}
	defer func() { <-h.noting }()
	err := h.note.Admit(c)
	if err == nil && c != nil && c.Who != run {
		if a := h.admitted; a != nil && a.Who == c.Who && a.Epoch > c.Epoch {
			h.fail(fmt.Sprintf("epoch %d of %s was admitted after %d", c.Epoch, c.Who, a.Epoch))
		}
		h.admitted = c
	}
	return err
}

// Hold implements agent.Fence.
func (h *onceHost) Hold(c *fence.LeaseRequest) (func(), error) {
	h.noting <- struct{}{}
	defer func() { <-h.noting }()
	release, err := h.note.Hold(c)
	if a := h.admitted; err == nil && a != nil && c != nil && c.Who != run && (a.ID() != c.ID() || a.Epoch != c.Epoch) {
		h.fail(fmt.Sprintf("epoch %d of %s acts, and %d of %s was admitted", c.Epoch, c.ID(), a.Epoch, a.ID()))
	}
	return release, err
}

// GiveBack implements agent.Fence.
func (h *onceHost) GiveBack(r *fence.LeaseRequest) error { return h.note.GiveBack(r) }

func (h *onceHost) Snapshot(context.Context, local.Age) ([]byte, error) {
	return []byte("{}"), nil
}
func (h *onceHost) Notify([]agent.Message) ([]agent.Receipt, error) { return nil, nil }

// Execute implements agent.Backend. The genv that does it may be killed at any moment.
func (h *onceHost) Execute(_ context.Context, o order.Order, asker ending.Authority) (done agent.Execution, err error) {
	var running sync.WaitGroup
	for _, t := range o.Terminate {
		running.Go(func() { h.end(t.Process, &o, asker) })
	}
	running.Wait()
	return done, nil
}

func (h *onceHost) end(p snapshot.Process, o *order.Order, asker ending.Authority) {
	key := []proc.ID{{PID: p.PID, Start: p.Start}}
	end, earlier, err := h.register.Begin(ending.EndRequest{By: asker.Name, Order: o.ID, Grace: o.Steps()[0].Wait}, key)
	if err != nil || h.roll(10) {
		return
	}
	if earlier[0] == nil {
		got := h.signal(p.PID, o, asker, false)
		if h.roll(10) {
			return
		}
		if !got {
			_ = end(nil)
			return
		}
		if end(key) != nil {
			return
		}
	}
	wait, kill := earlier[0].Rest(o.Steps()[0].Wait)
	time.Sleep(wait)
	if kill && o.Kill && !h.roll(10) {
		h.signal(p.PID, o, asker, true)
	}
}

// signal sends a signal while the asker has its right.
func (h *onceHost) signal(pid snapshot.PID, o *order.Order, asker ending.Authority, kill bool) bool {
	release, err := asker.Hold()
	if err != nil {
		return false
	}
	defer release()
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.victims[pid]
	if !v.ended.IsZero() && !time.Now().Before(v.ended) {
		return false
	}
	h.record = append(h.record, signalled{time.Now(), pid, kill, o.Steps()[0].Wait, o.ID, asker.Name})
	switch {
	case kill:
		v.ended = time.Now()
	case v.endsAfter > 0 && v.ended.IsZero():
		v.ended = time.Now().Add(v.endsAfter)
	}
	return true
}

// check compares the record with what must hold whatever the controllers did.
func (h *onceHost) check() (wrong []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wrong = h.wrong
	terms, orders := map[snapshot.PID][]signalled{}, map[string]bool{}
	for _, s := range h.record {
		id := fmt.Sprint(s.order, s.process, s.kill)
		if orders[id] {
			wrong = append(wrong, "an order was carried out twice: "+id)
		}
		orders[id] = true
		before := terms[s.process]
		if !s.kill {
			for _, b := range before {
				if s.at.Before(b.at.Add(b.grace)) {
					wrong = append(wrong, fmt.Sprintf("process %d got a second SIGTERM %s after the first one, with a grace of %s", s.process, s.at.Sub(b.at), b.grace))
				}
			}
			terms[s.process] = append(before, s)
			continue
		}
		for len(before) > 1 && before[len(before)-1].at.Equal(s.at) {
			before = before[:len(before)-1] // another order asked again at the moment at which the grace was over
		}
		if len(before) == 0 {
			wrong = append(wrong, "SIGKILL without SIGTERM")
		} else if last := before[len(before)-1]; s.at.Before(last.at.Add(min(last.grace, s.grace))) {
			wrong = append(wrong, fmt.Sprintf("SIGKILL %s after SIGTERM, with a grace of %s", s.at.Sub(last.at), last.grace))
		}
	}
	return wrong
}

// conductor plays a random schedule of controllers.
type conductor struct {
	*onceHost
	random      *rand.Rand
	epochs      map[string]uint64
	sent        int
	left        map[string]map[snapshot.PID]time.Time // by source: until when a process is left alone
	controllers []*player
	requests    sync.WaitGroup
}

// player is a controller.
type player struct {
	claim *fence.LeaseRequest // nil for none
	last  *agent.ExecuteRequest
	at    time.Time // at which the last order was sent
}

var run = "run:1"

func (c *conductor) start(takeOver bool) *player {
	source := []string{fence.Folder("a"), fence.Folder("b"), fence.Election(1, "/k"), run, ""}[c.random.IntN(5)]
	return c.startOf(source, takeOver)
}

func (c *conductor) startOf(source string, takeOver bool) *player {
	p := &player{}
	if source != "" {
		c.epochs[source]++
		p.claim = &fence.LeaseRequest{Who: source, Epoch: c.epochs[source], Controller: "c" + source, TakeOver: takeOver}
		if source == run {
			p.claim.Epoch = 1
		}
	}
	c.controllers = append(c.controllers, p)
	return p
}

// ask has a request arrive at the host after a while. Whether the controller gets the answer
// makes no difference to it: it judges what it sees next.
func (c *conductor) ask(p *player, name string, request any, after time.Duration) {
	body := mustMarshal(request)
	c.requests.Go(func() {
		time.Sleep(after)
		answers := &agent.Answers{Backend: c.onceHost, Fence: c.onceHost} // of a conversation
		ctx := context.Background()
		if name != agent.RequestExecute && p.claim != nil { // it said who it is
			if _, err := answers.Handle(ctx, agent.Call{Frame: &frame.Frame{Name: agent.RequestSnapshot, Body: mustMarshal(agent.SnapshotRequest{Lease: p.claim})}, Wanted: ctx}); err != nil {
				return
			}
		}
		_, _ = answers.Handle(ctx, agent.Call{Frame: &frame.Frame{Name: name, Body: body}, Wanted: ctx})
	})
}

func mustMarshal(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return body
}

// send has a controller send orders for all processes that it doesn't leave alone.
func (c *conductor) send(p *player, grace time.Duration, kill bool, after time.Duration) {
	source := ""
	if p.claim != nil {
		source = p.claim.Who
	}
	if c.left[source] == nil {
		c.left[source] = map[snapshot.PID]time.Time{}
	}
	c.sent++
	o := order.Order{ID: fmt.Sprint("r", c.sent)}
	for pid := range c.victims {
		if c.alive(pid) && !time.Now().Before(c.left[source][pid]) {
			c.left[source][pid] = time.Now().Add(after + grace)
			o.Terminate = append(o.Terminate, order.Termination{Process: snapshot.Process{
				PID: pid, Start: 1, Usage: []snapshot.DeviceUsage{{Memory: snapshot.MiB(1)}},
			}})
		}
	}
	if o.Empty() {
		return
	}
	o.Sort()
	encoded, err := order.EncodeNative(o)
	if err != nil {
		panic(err)
	}
	request := &agent.ExecuteRequest{Order: encoded, ID: o.ID, Options: order.Options{GraceMS: grace.Milliseconds(), Kill: kill}}
	if p.claim != nil {
		claim := *p.claim
		claim.TakeOver = false
		request.Lease = &claim
	}
	p.last, p.at = request, time.Now()
	c.ask(p, agent.RequestExecute, request, after)
}

func (c *conductor) step() {
	if len(c.controllers) == 0 || c.random.IntN(5) == 0 {
		c.start(c.random.IntN(2) == 0)
	}
	p := c.controllers[c.random.IntN(len(c.controllers))]
	after := time.Duration(0) // a controller that is frozen sends what it was about to send later
	if c.random.IntN(4) == 0 {
		after = time.Duration(c.random.Int64N(int64(latest)))
	}
	switch c.random.IntN(8) {
	case 0, 1:
		c.ask(p, agent.RequestSnapshot, agent.SnapshotRequest{Lease: p.claim}, after)
	case 2, 3, 4:
		c.send(p, time.Duration(5+c.random.IntN(40))*time.Second, c.random.IntN(2) == 0, after)
	case 5:
		if p.last != nil && time.Since(p.at) < latest { // on whatever way it was delivered once more
			c.ask(p, agent.RequestExecute, p.last, 0)
		}
	case 6:
		c.ask(p, agent.RequestGiveBack, struct{}{}, 0)
	default:
		time.Sleep(time.Duration(c.random.Int64N(int64(30 * time.Second))))
	}
	synctest.Wait()
}

// finish has a last controller end what is left, so that a host that refuses everything is found.
func (c *conductor) finish() bool {
	c.requests.Wait()
	last := c.startOf(fence.Folder("last"), true)
	c.ask(last, agent.RequestSnapshot, agent.SnapshotRequest{Lease: last.claim}, 0)
	c.requests.Wait()
	for range 100 {
		time.Sleep(time.Minute)
		c.send(last, 10*time.Second, true, 0)
		c.requests.Wait()
	}
	for pid := range c.victims {
		if c.alive(pid) {
			return false
		}
	}
	return true
}

// In any schedule of controllers that are started, frozen, killed and replaced, of answers that are lost and orders
// that arrive late or twice, and of hosts' genv killed in between: each order is carried out at most once, no process
// gets a second SIGTERM during its grace, or SIGKILL before the end of it, nothing is done for a controller that was
// replaced, and all processes end.
func TestPropertyEachOrderIsCarriedOutAtMostOnce(t *testing.T) {
	t.Parallel()
	dir := proctest.MemoryDir(t)
	signals, schedules := uint64(0), proctest.Cases(5_000)
	for seed := range schedules {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a schedule, no secret
			own := filepath.Join(dir, fmt.Sprint(seed))
			require.NoError(t, os.Mkdir(own, 0o755))
			c := &conductor{onceHost: newOnceHost(own, rand.New(rand.NewPCG(seed, 2))), random: random, epochs: map[string]uint64{}, left: map[string]map[snapshot.PID]time.Time{}} //nolint:gosec // likewise
			for range 40 {
				c.step()
			}
			ended := c.finish()
			require.Empty(t, c.check(), "schedule %d", seed)
			require.True(t, ended, "schedule %d: not all processes ended", seed)
			signals += uint64(len(c.record))
			require.NoError(t, os.RemoveAll(own))
		})
	}
	require.Greater(t, signals, schedules)
}
