package service

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Allowance is how many GPUs users may have by a policy that is enforced.
type Allowance struct {
	GPUs  *int                       `json:"gpus,omitempty"`  // of each user; nil for no cap
	Users map[snapshot.Username]*int `json:"users,omitempty"` // of those who have another one
	// OneHost says that the policy is about this host alone. Otherwise GPUs on all its hosts count together.
	OneHost bool  `json:"one_host,omitempty"`
	ForMS   int64 `json:"for_ms,omitempty"` // how long it holds unless it is renewed
}

// of is the allowance of one user, who learns nothing about others.
func (a *Allowance) of(user snapshot.Username) *Allowance {
	own, differs := a.Users[user]
	if !differs {
		own = a.GPUs
	}
	return &Allowance{GPUs: own, OneHost: a.OneHost}
}

// maxAllowance is how long an allowance holds at most.
const maxAllowance = 24 * time.Hour

// allowed is an allowance until a time.
type allowed struct {
	Allowance
	until time.Time
}

// allow notes what who enforces a policy says. It replaces what was said before.
func (s *Server) allow(a *Allowance, by callerProcess) Answer {
	if int(by.uid) != os.Geteuid() || by.unknown != nil {
		return failure(fmt.Errorf("%w: only root says how many GPUs users may have", state.ErrNotOwner))
	}
	holds := min(time.Duration(max(a.ForMS, 0)), maxAllowance/time.Millisecond) * time.Millisecond
	s.allowed.Store(&allowed{*a, s.Now().Add(holds)})
	return Answer{}
}

// allowance is that of who asks; none if it is unknown.
func (s *Server) allowance(ctx context.Context, by callerProcess) Answer {
	now := s.allowed.Load()
	if now == nil || !s.Now().Before(now.until) || by.contained {
		return Answer{}
	}
	user := s.Username(ctx, by.account)
	if user == "" {
		return Answer{}
	}
	return Answer{Allowance: now.of(user)}
}

// Allow says how many GPUs users may have. Only root may.
func (c Client) Allow(ctx context.Context, a Allowance) error {
	_, err := c.ask(ctx, Request{Allow: &a})
	return err
}

// Allowance is how many GPUs the user who asks may have; nil if that is unknown.
func (c Client) Allowance(ctx context.Context) (*Allowance, error) {
	answer, err := c.ask(ctx, Request{Allowance: true})
	return answer.Allowance, err
}
