package service

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-3119e985/genv/snapshot/state/change"
)

// Wait stands in the queue of this host and returns what the change has done. tell gets each new place, and nil while
// the service is away, which keeps it. The error is one of Client.Change, or the cause of ctx's end, which leaves the
// queue.
func (c Client) Wait(ctx context.Context, r WaitRequest, tell func(*Place)) (change.Result, error) {
	for queued := false; ; {
		answer, err := c.waitOnce(ctx, Request{Version: Version, Wait: &r}, func(p *Place) {
			queued = true
			tell(p)
		})
		switch {
		case ctx.Err() != nil:
			return change.Result{}, context.Cause(ctx)
		case errors.Is(err, ErrBusy):
		case !queued, !errors.Is(err, ErrNotRunning) && !errors.Is(err, ErrUnknown):
			return given(answer.Result, err)
		default:
			tell(nil)
		}
		select {
		case <-time.After(200*time.Millisecond + rand.N(300*time.Millisecond)):
		case <-ctx.Done():
		}
	}
}

// waitOnce waits on one connection.
func (c Client) waitOnce(ctx context.Context, r Request, tell func(*Place)) (answer Answer, err error) {
	conn, err := c.open(ctx)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	_ = writeLine(conn, r) // it may have been refused before all was sent
	for answers := json.NewDecoder(conn); ; {
		answer = Answer{}
		if err := answers.Decode(&answer); err != nil {
			return answer, ErrUnknown
		}
		if answer.Waiting == nil {
			return answer, answer.err()
		}
		tell(answer.Waiting)
	}
}
