package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/quota"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

// converse answers one request. After release, conn no longer counts for the user.
func (s *Server) converse(ctx context.Context, conn *net.UnixConn, by callerProcess, release func()) {
	_ = conn.SetReadDeadline(time.Now().Add(s.admission.bounds.Send))
	limit := MaxRequest
	if int(by.uid) == os.Geteuid() {
		limit = maxAnswer // for Allow
	}
	line, err := readLine(conn, limit)
	var r Request
	var answer Answer
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = state.Refuse("it didn't come within %s", s.admission.bounds.Send)
	case errors.Is(err, errTooLong):
		err = state.Refuse("it is longer than %d bytes", limit)
	case err != nil: // the client is gone
		return
	default:
		r, err = decodeRequest(line)
	}
	switch {
	case err != nil:
	case by.contained && r.changes():
		err = errContained
	case r.Wait != nil:
		s.served.Add(1)
		s.wait(ctx, conn, r.Wait, by, release)
		return
	default:
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), changeWithin)
		ctx, cancel := untilClosed(ctx, conn)
		answer, err = s.answer(ctx, &r, by)
		cancel()
		done()
	}
	if err != nil {
		answer = failure(err)
	}
	s.served.Add(1)
	if answer.Busy {
		s.refused.Add(1)
	}
	_ = s.say(conn, answer, takeWithin) // a client that is gone checks by itself
}

func (s *Server) say(conn net.Conn, answer Answer, within time.Duration) error {
	answer.Version = Version
	_ = conn.SetWriteDeadline(time.Now().Add(within))
	return writeLine(conn, answer)
}

func untilClosed(ctx context.Context, conn *net.UnixConn) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	_ = conn.SetReadDeadline(time.Time{})
	go func() {
		defer close(done)
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	}()
	return ctx, func() {
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // ends the read
		<-done
		cancel()
	}
}

func failure(err error) Answer {
	return Answer{Error: change.EncodeError(err), Busy: errors.Is(err, ErrBusy)}
}

func (s *Server) answer(ctx context.Context, r *Request, by callerProcess) (Answer, error) {
	switch {
	case r.Status:
		return Answer{Status: &Status{
			PID: os.Getpid(), Genv: s.Genv, Since: s.since.UTC(), Connections: s.admission.connections(),
			Served: s.served.Load(), Refused: s.refused.Load(),
		}}, nil
	case r.Look != "":
		viewer := Viewer{by.account, by.groups}
		if by.contained {
			viewer = Viewer{UID: snapshot.NoUID}
		}
		document, err := s.Backend.Look(ctx, r.Look, viewer)
		return Answer{Document: document}, err
	case r.Token != nil:
		return s.issue(*r.Token, by)
	case r.Redeem != "":
		return s.redeem(r.Redeem, by)
	case r.Allow != nil:
		return s.allow(r.Allow, by)
	case r.Allowance:
		return s.allowance(ctx, by), nil
	case r.Reserve != nil:
		return s.reserve(ctx, r.Reserve, by)
	case r.Cancel != "":
		return s.cancel(r.Cancel, by)
	case r.Withdraw != "":
		s.waits.withdraw(r.Withdraw, by.account)
		return Answer{}, nil
	}
	r.Change.Avoid(s.waits.keptFrom(by.account))
	result, err := s.changeWithinCaps(ctx, *r.Change, by)
	if err == nil {
		s.waits.took(by.account, result.Now)
		s.waits.wake()
	}
	return Answer{Result: &result}, err
}

// changeWithinCaps lets the controller look again if a cap refuses. An Enter may then go without GPUs.
func (s *Server) changeWithinCaps(ctx context.Context, asked change.Change, by callerProcess) (change.Result, error) {
	result, err := s.change(ctx, asked, by, true)
	if errors.Is(err, errUntold) || errors.Is(err, state.ErrCap) {
		s.lookAgain(ctx, by.account)
		result, err = s.change(ctx, asked, by, false)
	}
	enter := asked.Enter
	if enter == nil || enter.Whole || !errors.Is(err, state.ErrCap) {
		return result, err
	}
	entry, refused := *enter, err.Error()
	entry.Attach, asked.Enter = false, &entry
	result, err = s.change(ctx, asked, by, false)
	result.Refused = refused
	return result, err
}

// requester describes the caller of the service. named must be closed.
func (s *Server) requester(ctx context.Context, by callerProcess) (asker change.Requester, named *processes) {
	named = &processes{fs: s.Proc, by: by, held: map[snapshot.PID]*proc.Handle{}}
	asker = change.Requester{
		UID: by.account, Now: snapshot.DateOf(s.Now()), Owner: named.owner,
		Username: func(uid snapshot.UID) snapshot.Username {
			if by.name != "" && uid == by.account {
				return by.name
			}
			return s.Username(ctx, uid)
		},
		Lacks: func(uid snapshot.UID) bool { return s.Lacks != nil && by.name == "" && s.Lacks(ctx, uid) },
	}
	asker.Instant = s.Now()
	asker.Reserved, _ = s.Reservations.All() // upkeep reports the error; without a list nothing is refused
	if running, _ := snapshot.RunningAt(asker.Reserved, asker.Instant); len(running) > 0 {
		if look, err := s.Backend.Snapshot(ctx); err == nil { // else only attachments count
			asker.Used = peopleOn(look)
		}
	}
	if by.unknown == nil {
		asker.PID = by.pid
	}
	return asker, named
}

// change makes a change, and reverts it if the process ended meanwhile. With untold it returns errUntold if the
// controller must be asked first.
func (s *Server) change(ctx context.Context, asked change.Change, by callerProcess, untold bool,
) (change.Result, error) {
	asker, named := s.requester(ctx, by)
	defer named.close()
	if asked.Leave != nil && asked.Leave.PID != 0 && by.unknown != nil {
		return change.Result{}, by.unknown
	}
	turn := func(ctx context.Context) (func(), error) {
		release, err := s.turns.Take(ctx, by.account)
		if errors.Is(err, quota.ErrBusy) {
			err = tooMany(by.account)
		}
		return release, err
	}
	asker.Caps = s.withinCaps(by.account, untold)
	result, err := s.Backend.Change(ctx, asked, asker, turn)
	if gone := named.gone(); err == nil && asked.Enter != nil && gone != 0 {
		forget := change.Change{Leave: &change.Leave{PID: gone}}
		_, _ = s.Backend.Change(ctx, forget, change.Requester{Now: asker.Now}, turn) // failures are cleaned up later
		return change.Result{}, fmt.Errorf("process %d: %w", gone, proc.ErrGone)
	}
	return result, err
}

// issue makes a token for any user: the environment's owner is checked when the container starts.
func (s *Server) issue(eid snapshot.EnvID, by callerProcess) (Answer, error) {
	if by.unknown != nil { // a container can have any uid
		return Answer{}, by.unknown
	}
	text, err := s.tokens.Issue(grant.ProvedUser{UID: by.account, EID: eid})
	return Answer{Token: text}, err
}

func (s *Server) redeem(text string, by callerProcess) (Answer, error) {
	if !by.isRoot() {
		return Answer{}, fmt.Errorf("%w: only root's container runtime redeems tokens", state.ErrNotOwner)
	}
	holder, ok := s.tokens.Redeem(text)
	if !ok {
		return Answer{}, state.Refuse("the token was used before, is too old, or isn't of this service")
	}
	return Answer{Holder: &holder}, nil
}

// Token returns a proof of who starts a container, in environment eid or, if empty, in a new one.
func (c Client) Token(ctx context.Context, eid snapshot.EnvID) (string, error) {
	answer, err := c.ask(ctx, Request{Token: &eid})
	if err == nil && answer.Token == "" {
		err = errors.New("the service gave no token")
	}
	return answer.Token, err
}

// Redeem returns who starts the container, or a state.ErrRequest for an invalid token.
func (c Client) Redeem(ctx context.Context, text string) (grant.ProvedUser, error) {
	if len(text) > grant.MaxToken {
		return grant.ProvedUser{}, state.Refuse("it is not a token")
	}
	answer, err := c.ask(ctx, Request{Redeem: text})
	return given(answer.Holder, err)
}
