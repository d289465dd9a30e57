package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/remote/operator"
)

// maxWaiting is how many actions may wait for the loop. It carries them out one at a time,
// each with a record on the disk.
const maxWaiting = 64

// answerWithin is how long Queue.Do waits for a host that is carrying an action out.
const answerWithin = 5 * time.Second

// Queue carries the actions of operators to a Loop. It is safe for concurrent use.
type Queue struct {
	requests chan *request
	ended    chan struct{} // closed when the loop ends
}

// NewQueue returns a Queue, for one Loop.
func NewQueue() *Queue {
	return &Queue{requests: make(chan *request, maxWaiting), ended: make(chan struct{})}
}

// request is an action that waits for its answer.
type request struct {
	ctx    context.Context // of the person who asks
	who    operator.Person
	action operator.Action
	// replies has room for two: that it is under way, and what came of it.
	replies chan reply
}

type reply struct {
	answer operator.Answer
	err    error
}

// Do has the loop carry an action out, and waits for the answer: for a host some seconds,
// and otherwise the action is under way. A *operator.Refusal as the error says that nothing
// was done.
func (q *Queue) Do(ctx context.Context, who operator.Person, a operator.Action) (operator.Answer, error) {
	if err := a.Check(); err != nil {
		return operator.Answer{}, err
	}
	r := &request{ctx: ctx, who: who, action: a, replies: make(chan reply, 2)}
	select {
	case q.requests <- r:
	default:
		return operator.Answer{}, operator.Refuse(operator.Busy, "Try again.", "%d actions are waiting already", maxWaiting)
	}
	first, ok := q.await(ctx, r)
	switch {
	case !ok && ctx.Err() != nil:
		return operator.Answer{}, fmt.Errorf("whether it was begun is not known: %w", context.Cause(ctx))
	case !ok:
		return operator.Answer{}, operator.Refuse(operator.NotStarted, "Start the controller again.", "the controller has ended")
	case first.err != nil || first.answer.Done:
		return first.answer, first.err
	}
	patient, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if last, ok := q.await(patient, r); ok {
		return last.answer, last.err
	}
	return first.answer, nil
}

// await waits for the next reply; false if ctx or the loop ends first.
func (q *Queue) await(ctx context.Context, r *request) (reply, bool) {
	select {
	case got := <-r.replies:
		return got, true
	case <-ctx.Done():
	case <-q.ended:
	}
	select {
	case got := <-r.replies: // it came at the same time
		return got, true
	default:
		return reply{}, false
	}
}

// waiting are the requests; nil for a Queue that is nil.
func (q *Queue) waiting() <-chan *request {
	if q == nil {
		return nil
	}
	return q.requests
}

// end answers what waits, and what comes later.
func (q *Queue) end() {
	if q != nil {
		close(q.ended)
	}
}

// begun answers that an action is under way.
func (r *request) begun(text string) {
	r.replies <- reply{answer: operator.Answer{Schema: operator.AnswerSchema, Text: text}}
}

// finish answers what came of an action.
func (r *request) finish(text string) {
	r.replies <- reply{answer: operator.Answer{Schema: operator.AnswerSchema, Done: true, Text: text}}
}

// refuse answers that nothing was done.
func (r *request) refuse(err error) { r.replies <- reply{err: err} }
