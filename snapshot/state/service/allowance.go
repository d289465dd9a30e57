package service

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Allowance is what whoever enforces a policy tells a host about it.
type Allowance struct {
	GPUs  *int                       `json:"gpus,omitempty"`  // of each user; nil for no cap
	Users map[snapshot.Username]*int `json:"users,omitempty"` // of those who have another one

	// By is who enforces the policy, and Contact whom users ask about it; empty for nobody.
	By      string `json:"by,omitempty"`
	Contact string `json:"contact,omitempty"`
	// Rules are the settings that hold here for people of whom People says no others.
	Rules []Rule `json:"rules,omitempty"`
	Caps  []Cap  `json:"caps,omitempty"`
	// People are those who have processes or environments here, or asked lately. Of others nothing is known.
	People map[snapshot.UID]Person `json:"people,omitempty"`
	// Offers are the GPUs that are freed for waits, by their ids.
	Offers map[string][]snapshot.DeviceIndex `json:"offers,omitempty"`
	// Asked is the Number of the Asked that it answers.
	Asked uint64 `json:"asked,omitempty"`

	// OneHost says that the policy is about this host alone. Otherwise GPUs on all its hosts count together.
	OneHost bool  `json:"one_host,omitempty"`
	ForMS   int64 `json:"for_ms,omitempty"` // how long it holds unless it is renewed
}

// Rule is a setting of the policy, as `genv policy explain` prints it.
type Rule struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Cap is a cap that holds now for people of this host.
type Cap struct {
	Name string `json:"name"` // as people are shown it
	// Counts is what it counts: see text.CapAmount.
	Counts string `json:"counts"`
	// GPUs are those of this host that it is about.
	GPUs     []snapshot.DeviceIndex `json:"gpus,omitempty"`
	Together bool                   `json:"together,omitempty"` // people share it
	PerHost  bool                   `json:"per_host,omitempty"` // this host is counted by itself
	// While says that it holds only as far as others wait, so that nothing is refused for it.
	While bool      `json:"while,omitempty"`
	Until time.Time `json:"until,omitzero"` // when hours count from 0 again
}

// Person is what holds for one person.
type Person struct {
	Caps  []CapUse `json:"caps,omitempty"`
	Rules []Rule   `json:"rules,omitempty"` // nil for those of the Allowance
	// Booking is what the person may reserve; nil for nothing.
	Booking *Booking `json:"booking,omitempty"`
}

// CapUse is what a cap counts for a person, or for those who share it, and what it allows.
type CapUse struct {
	Cap       int                 `json:"cap"` // its place in Allowance.Caps
	Limit     int64               `json:"limit"`
	Here      int64               `json:"here,omitempty"`      // what counts on this host
	Elsewhere int64               `json:"elsewhere,omitempty"` // and on other ones
	Hosts     []snapshot.Hostname `json:"hosts,omitempty"`     // some of these
	SeenMS    int64               `json:"seen_ms,omitempty"`   // how long ago the oldest of these was seen
	// GPUs are those of this host that count.
	GPUs []snapshot.DeviceIndex `json:"gpus,omitempty"`
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
	s.waits.offered(a.Offers)
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
