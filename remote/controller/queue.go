package controller

import (
	"context"
	"fmt"

	"github.com/seed-3119e985/genv/remote/operator"
)

const maxWaiting = 64 // actions

// Queue carries the actions of operators to a Loop. It is safe for concurrent use.
type Queue struct {
	actions chan *pendingAction
	ended   chan struct{} // closed by End
}

// NewQueue returns an empty Queue.
func NewQueue() *Queue {
	return &Queue{actions: make(chan *pendingAction, maxWaiting), ended: make(chan struct{})}
}

type pendingAction struct {
	ctx    context.Context // of the operator
	who    operator.Author
	action operator.Action
	done   chan struct{} // closed when it has an answer
	text   string
	err    error
}

// Do has the loop carry out an action, and waits for the answer. With a *operator.Refusal as error nothing was done.
func (q *Queue) Do(ctx context.Context, who operator.Author, a operator.Action) (operator.Answer, error) {
	if err := a.Check(); err != nil {
		return operator.Answer{}, err
	}
	r := &pendingAction{ctx: ctx, who: who, action: a, done: make(chan struct{})}
	select {
	case q.actions <- r:
	default:
		return operator.Answer{}, operator.Refuse(operator.Busy, "Try again.", "%d actions are waiting already",
			maxWaiting)
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	case <-q.ended:
	}
	select {
	case <-r.done: // perhaps at the same time
		return operator.Answer{Schema: operator.AnswerSchema, Done: r.err == nil, Text: r.text}, r.err
	default:
	}
	if ctx.Err() != nil {
		return operator.Answer{}, fmt.Errorf("whether it was begun is not known: %w", context.Cause(ctx))
	}
	return operator.Answer{}, operator.Refuse(operator.NotStarted, "Start the controller again.",
		"the controller has ended")
}

// waiting returns the channel of actions; nil for a nil Queue.
func (q *Queue) waiting() <-chan *pendingAction {
	if q == nil {
		return nil
	}
	return q.actions
}

// End refuses the actions that wait or come later. It is called after the Loop.
func (q *Queue) End() { close(q.ended) }
