package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// Backend is the host. It is safe for concurrent use.
type Backend interface {
	// Snapshot returns the host's snapshot as snapshot.EncodeNative writes it. It may give up when ctx ends.
	Snapshot(ctx context.Context, age local.Age) ([]byte, error)
	// Execute carries out an order while asker has the right to, even if the controller has hung up.
	Execute(ctx context.Context, o order.Order, asker ending.Authority) (Execution, error)
	// Notify shows messages on users' terminals, or keeps them for their next login.
	Notify(messages []Message) ([]Receipt, error)
}

// NewGreeting is the greeting of a host with Answers. more are further capabilities.
func NewGreeting(genv string, more ...string) frame.Greeting {
	return frame.Greeting{
		Protocol: frame.Version, Genv: genv,
		Capabilities: append(
			[]string{RequestSnapshot, RequestExecute, RequestNotify, RequestPing, "parallel", CapabilityOver}, more...,
		),
	}
}

// NewViewGreeting is the greeting of a host with a ViewHandler.
func NewViewGreeting(genv string) frame.Greeting {
	return frame.Greeting{
		Protocol: frame.Version, Genv: genv,
		Capabilities: []string{RequestDevices, RequestEnvironments, RequestPing},
	}
}

// ViewHandler handles requests without root, and refuses to change anything. document returns a document of genv 1.4.3,
// devices or envs, and may give up when ctx ends.
func ViewHandler(document func(ctx context.Context, part string) ([]byte, error)) Handler {
	return func(_ context.Context, r Call) ([]byte, error) {
		switch r.Name {
		case RequestDevices, RequestEnvironments: // as the documents are called
			return document(r.Wanted, r.Name)
		case RequestPing:
			return r.Body, nil
		}
		return nil, fmt.Errorf("genv runs without root here: it shows GPUs and environments, and has no request %q",
			r.Name)
	}
}

// Answers answer the requests of one controller.
type Answers struct {
	Backend Backend
	Fence   Fence // nil for a host without CapabilityFence
	// Guard gives or renews an order for the kernel guard; nil for a host without the capability RequestGuard. It must
	// be quick: other requests wait for it.
	Guard func(context.Context, GuardRequest) (GuardAnswer, error)
	// Event waits until something may have changed since the last snapshot began; nil for a host without
	// CapabilityEvents. Its error is the cause of ctx's end, or why there are no events.
	Event func(context.Context) error
	// These may be nil.
	Tokens func(own string) ([]string, error)    // keeps a token, and returns SnapshotAnswer.Tokens
	Allow  func(*service.Allowance)              // passes on an allowance, nil for no change; it must not wait
	Try    func(context.Context) *snapshot.Trial // tries what acting on the host needs

	body     []byte          // of the last RequestSnapshot
	request  SnapshotRequest // decoded
	codes    atomic.Bool     // see SnapshotRequest.Codes
	revision uint64
	last     []byte                             // the snapshot of that revision
	lease    atomic.Pointer[fence.LeaseRequest] // nil for none
}

// renew admits the lease of r or, without one, of an earlier request. Without any lease a controller may look. It takes
// over a host once: another controller may take it over later.
func (a *Answers) renew(r *fence.LeaseRequest) error {
	asked := cmp.Or(r, a.lease.Load())
	if r != nil {
		kept := *r
		kept.TakeOver = false
		a.lease.Store(&kept)
	}
	if asked == nil {
		return nil
	}
	return a.admit(asked)
}

// Fence decides which controller may act on a host; *fence.LeaseFile is one. It is safe for concurrent use.
type Fence interface {
	// Admit returns an error if the controller with this request, nil for none, may do nothing.
	Admit(r *fence.LeaseRequest) error
	// Hold is Admit right before an action. No other controller can follow until release is called.
	Hold(r *fence.LeaseRequest) (release func(), err error)
	// GiveBack notes that the controller with this request has ended.
	GiveBack(r *fence.LeaseRequest) error
	Given() (*fence.Lease, error) // the last lease; nil for none
}

func (a *Answers) admit(r *fence.LeaseRequest) error {
	if a.Fence == nil {
		return nil
	}
	return a.Fence.Admit(r)
}

// Handle is a Handler. Only RequestExecute, RequestNotify and RequestWait may be handled concurrently.
func (a *Answers) Handle(ctx context.Context, r Call) ([]byte, error) {
	body, err := a.handle(ctx, r)
	if err != nil && a.codes.Load() {
		err = coded(err)
	}
	return body, err
}

func (a *Answers) handle(ctx context.Context, r Call) ([]byte, error) {
	switch r.Name {
	case RequestSnapshot:
		return encoded(a.snapshot(r.Wanted, &r))
	case RequestExecute:
		return answer(ctx, r.Body, a.execute)
	case RequestNotify:
		return answer(ctx, r.Body, a.notify)
	case RequestGuard:
		return answer(r.Wanted, r.Body, a.guard)
	case RequestWait:
		return answer(r.Wanted, r.Body, a.wait)
	case RequestGiveBack:
		return answer(ctx, r.Body, a.giveBack)
	case RequestActing:
		return answer(r.Wanted, r.Body, a.acting)
	case RequestPing:
		return r.Body, nil
	}
	return nil, fmt.Errorf("this version has no request %q", r.Name)
}

func answer[Q, A any](ctx context.Context, body []byte, do func(context.Context, Q) (A, error)) ([]byte, error) {
	var request Q
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	return encoded(do(ctx, request))
}

func encoded[A any](answer A, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return snapshot.Marshal(answer)
}

func (a *Answers) giveBack(context.Context, struct{}) (answer struct{}, err error) {
	lease := a.lease.Load()
	if a.Fence == nil || lease == nil {
		return answer, nil
	}
	return answer, a.Fence.GiveBack(lease)
}

func (a *Answers) snapshot(ctx context.Context, r *Call) (answer SnapshotAnswer, err error) {
	if a.body == nil || !bytes.Equal(r.Body, a.body) { // most requests repeat the last one
		var request SnapshotRequest
		if err := json.Unmarshal(r.Body, &request); err != nil {
			return answer, err
		}
		a.body, a.request = r.Body, request
	}
	request := &a.request
	a.codes.Store(request.Codes)
	if err := a.renew(request.Lease); err != nil {
		return answer, err
	}
	if a.Allow != nil && (request.Allowance == nil || a.lease.Load() != nil || a.admit(nil) == nil) {
		a.Allow(request.Allowance)
	}
	age := local.Age{Measured: bounded(request.AgeMS), Oldest: bounded(request.MaxAgeMS)}
	if within := bounded(request.WithinMS); within > 0 {
		age.Until = r.Received.Add(within / 3 * 2) // so that the answer is there in time
	}
	taken, err := a.Backend.Snapshot(ctx, age)
	if err != nil {
		return answer, err
	}
	if !bytes.Equal(taken, a.last) {
		a.revision++
		a.last = taken
	}
	answer.Revision, answer.ClockMS = a.revision, time.Now().UnixMilli()
	if a.Tokens != nil && r.Token != "" {
		answer.Tokens, _ = a.Tokens(r.Token) // after an error they are unknown
	}
	if request.Revision != a.revision {
		answer.Snapshot = taken
		since, _ := proc.SinceBoot() // 0 is unknown
		answer.SinceBootMS = since.Milliseconds()
	}
	return answer, nil
}

func (a *Answers) execute(ctx context.Context, request ExecuteRequest) (done Execution, err error) {
	o, err := request.order()
	if err == nil {
		err = a.admit(request.Lease)
	}
	if err != nil {
		return done, err
	}
	done, err = a.Backend.Execute(ctx, o, a.asker(request.Lease))
	done.Lines = append([]string{}, done.Lines...) // an empty list, not null
	return done, err
}

func (a *Answers) asker(r *fence.LeaseRequest) ending.Authority {
	if a.Fence == nil {
		return ending.Authority{}
	}
	return ending.Authority{Name: r.ID(), Hold: func() (func(), error) { return a.Fence.Hold(r) }}
}

func (r *ExecuteRequest) order() (order.Order, error) {
	o, err := order.DecodeNative(r.Order)
	if err != nil {
		return o, err
	}
	o.ID, o.Options = r.ID, r.Options
	o.SetReasons(r.AllReasons)
	return o, o.Check()
}

const maxMessages = 1024 // of a request

func (a *Answers) notify(_ context.Context, request NotifyRequest) (NotifyAnswer, error) {
	if len(request.Messages) > maxMessages {
		return NotifyAnswer{}, fmt.Errorf("%d messages: at most %d are shown", len(request.Messages), maxMessages)
	}
	if err := a.admit(a.lease.Load()); err != nil {
		return NotifyAnswer{}, err
	}
	shown, err := a.Backend.Notify(request.Messages)
	return answerOf(shown), err
}
