package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// issue makes a token for anyone. Whether the environment is that user's is looked at when the container starts.
func (s *Server) issue(eid snapshot.EnvID, by callerProcess) (Answer, error) {
	if by.unknown != nil { // a container can have processes of any uid
		return Answer{}, by.unknown
	}
	text, err := s.tokens.Issue(grant.Holder{UID: by.account, EID: eid})
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

// Token asks for a token that proves who starts a container, in an environment or (if eid is empty) in one of its own.
func (c Client) Token(ctx context.Context, eid snapshot.EnvID) (string, error) {
	answer, err := c.ask(ctx, Request{Token: &TokenRequest{EID: eid}})
	if err == nil && answer.Token == "" {
		err = errors.New("the service gave no token")
	}
	return answer.Token, err
}

// Redeem returns for whom a container with a token is started. The error wraps state.ErrRequest for a false one.
func (c Client) Redeem(ctx context.Context, text string) (grant.Holder, error) {
	if len(text) > grant.MaxToken {
		return grant.Holder{}, state.Refuse("it is not a token")
	}
	answer, err := c.ask(ctx, Request{Redeem: text})
	return given(answer.Holder, err)
}
