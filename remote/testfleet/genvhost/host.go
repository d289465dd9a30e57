package genvhost

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// Host is a simulated host. It is safe for concurrent use.
type Host struct {
	mu       sync.Mutex
	state    *snapshot.Snapshot
	encoded  []byte // of state; nil when it has changed since
	revision uint64
	carried  []Carried
	mood     func(request string) Mood
	old      bool
	answered []time.Time
	keeps    bool // times of answers
}

// Carried is an item of a report that the host was given.
type Carried struct {
	At      time.Time
	Outcome enforce.Outcome
	Judged  snapshot.Process // for a termination
}

// New makes a host; the snapshot is the host's from then on.
func New(state *snapshot.Snapshot) *Host {
	return &Host{state: state, mood: func(string) Mood { return Mood{} }}
}

// Old makes it a host with genv 1.4.3, which knows no `usage serve`.
func (h *Host) Old() *Host {
	h.old = true
	return h
}

// Change changes what the host's snapshot says.
func (h *Host) Change(change func(*snapshot.Snapshot)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h.state)
	h.encoded = nil
}

// Carried is what the host was told to do so far, in order.
func (h *Host) Carried() []Carried {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.carried)
}

// TakeCarried is Carried, and the host forgets it: what a long test is checked
// by must not grow with the time that it takes.
func (h *Host) TakeCarried() []Carried {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.carried
	h.carried = nil
	return taken
}

// Behave makes the host ask f how to behave at each request.
func (h *Host) Behave(f func(request string) Mood) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mood = f
}

// KeepTimes has the host note when it answers, for Answered.
func (h *Host) KeepTimes() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keeps = true
}

// Answered is when the host was asked for its snapshot, since KeepTimes.
func (h *Host) Answered() []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.answered)
}

// TakeAnswered is Answered, and the host forgets it.
func (h *Host) TakeAnswered() []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.answered
	h.answered = nil
	return taken
}

// snapshot answers a request for a snapshot as genv does.
func (h *Host) snapshot(body []byte) ([]byte, error) {
	var request agent.SnapshotRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keeps {
		h.answered = append(h.answered, time.Now())
	}
	if h.encoded == nil {
		encoded, err := snapshot.EncodeNative(h.state)
		if err != nil {
			return nil, err
		}
		h.encoded = encoded
		h.revision++
	}
	answer := agent.SnapshotAnswer{Revision: h.revision}
	if request.Revision != h.revision {
		answer.Snapshot = h.encoded
	}
	return json.Marshal(answer)
}

// execute answers a request to carry out a report.
func (h *Host) execute(body []byte) ([]byte, error) {
	var request agent.ExecuteRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	report, err := enforce.DecodeNativeReport(request.Report)
	if err != nil {
		return nil, err
	}
	lines, outcomes := h.carryOut(report)
	return json.Marshal(agent.ExecuteAnswer{Lines: lines, Outcomes: outcomes})
}

// carryOut does on the snapshot what a report says.
func (h *Host) carryOut(report enforce.Report) (lines []string, outcomes []enforce.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.encoded = nil
	note := func(o enforce.Outcome, judged snapshot.Process) {
		outcomes = append(outcomes, o)
		h.carried = append(h.carried, Carried{At: time.Now(), Outcome: o, Judged: judged})
	}
	lines = []string{}
	for _, d := range report.Detach {
		o := enforce.Outcome{Device: d.Device, EID: d.Environment.EID, Status: enforce.StatusNotAttached}
		if h.detach(d) {
			o.Status = enforce.StatusDetached
			lines = append(lines, d.String())
		}
		note(o, snapshot.Process{})
	}
	for _, t := range report.Terminate {
		o := enforce.Outcome{PID: t.Process.PID, EID: t.Process.EID, Status: h.terminate(&t.Process)}
		if o.Status == enforce.StatusTerminated {
			lines = append(lines, t.String())
		}
		note(o, t.Process)
	}
	return lines, outcomes
}

func (h *Host) detach(d enforce.Detachment) bool {
	device := h.state.Device(d.Device)
	if device == nil || device.Attachment(d.Environment.EID) == nil {
		return false
	}
	device.Attachments = slices.DeleteFunc(device.Attachments, func(a snapshot.Attachment) bool { return a.EID == d.Environment.EID })
	return true
}

func (h *Host) terminate(judged *snapshot.Process) enforce.Status {
	i := slices.IndexFunc(h.state.Processes, func(p snapshot.Process) bool { return p.PID == judged.PID })
	if i < 0 {
		return enforce.StatusGone
	}
	if judged.Start != 0 && h.state.Processes[i].Start != judged.Start {
		return enforce.StatusChanged
	}
	h.state.Processes = slices.Delete(h.state.Processes, i, i+1)
	return enforce.StatusTerminated
}

// conversation is the host's end of `usage serve`.
type conversation struct {
	host *Host
	out  *twister
}

// Handle implements agent.Handler.
func (c *conversation) Handle(ctx context.Context, r agent.Request) ([]byte, error) {
	mood := c.host.moodFor(r.Name)
	if err := mood.pause(ctx, r.Wanted); err != nil {
		return nil, err
	}
	answer, err := c.answer(r)
	c.out.next = mood
	return answer, err
}

func (c *conversation) answer(r agent.Request) ([]byte, error) {
	switch r.Name {
	case agent.RequestSnapshot:
		return c.host.snapshot(r.Body)
	case agent.RequestExecute:
		return c.host.execute(r.Body)
	}
	return nil, fmt.Errorf("%q is no request of this version", r.Name)
}

func (h *Host) moodFor(request string) Mood {
	h.mu.Lock()
	f := h.mood
	h.mu.Unlock()
	return f(request)
}
