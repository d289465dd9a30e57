package service

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Allowance is what a controller or `genv enforce` tells a host about its policy.
type Allowance struct {
	By      string `json:"by,omitempty"`      // who enforces the policy
	Contact string `json:"contact,omitempty"` // whom users ask about it; empty for none
	Page    string `json:"page,omitempty"`    // where people see all hosts; empty if unknown
	Rules   []Rule `json:"rules,omitempty"`   // for everyone whose Person has none
	Caps    []Cap  `json:"caps,omitempty"`
	// People are those with processes or environments here, or who asked lately. Others are unknown.
	People   map[snapshot.UID]Person           `json:"people,omitempty"`
	Offers   map[string][]snapshot.DeviceIndex `json:"offers,omitempty"`   // GPUs freed for waits, by wait ID
	Possible map[string]int                    `json:"possible,omitempty"` // GPUs that waits can get, if too few
	Asked    uint64                            `json:"asked,omitempty"`    // Number of the Asked that this answers
	Since    time.Time                         `json:"since,omitzero"`     // of these rules; set by root's service
	Expired  bool                              `json:"expired,omitempty"`  // ForMS is over; set by root's service
	// OneHost: the policy covers only this host. Otherwise GPUs on all its hosts count together.
	OneHost bool  `json:"one_host,omitempty"`
	ForMS   int64 `json:"for_ms,omitempty"` // how long this holds without renewal
	AgeMS   int64 `json:"age_ms,omitempty"` // time since root's service received it
}

// CapsUnknown is shown to people while an Allowance is Unknown.
const CapsUnknown = "your caps are unknown yet: try again in a minute"

// Unknown says that the controller hasn't yet said what holds for the person who asked.
func (a *Allowance) Unknown() bool { return !a.Expired && len(a.People) == 0 }

// Rule is a setting of the policy, as `genv policy explain` prints it.
type Rule struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Cap is a cap that holds now on this host.
type Cap struct {
	Name     string                 `json:"name,omitempty"`     // shown to people
	Rule     string                 `json:"rule,omitempty"`     // its setting, such as max-devices-per-user; else empty
	Model    string                 `json:"model,omitempty"`    // of its GPUs, such as A100; empty for all
	Counts   string                 `json:"counts"`             // see text.CapAmount
	GPUs     []snapshot.DeviceIndex `json:"gpus,omitempty"`     // of this host
	Together bool                   `json:"together,omitempty"` // people share it
	PerHost  bool                   `json:"per_host,omitempty"` // this host is counted by itself
	While    bool                   `json:"while,omitempty"`    // applies only while others wait; refuses nothing
	Until    time.Time              `json:"until,omitzero"`     // when its schedule ends or its hours restart at 0
}

// Person is what holds for one person.
type Person struct {
	Caps       []CapUse    `json:"caps,omitempty"`
	Rules      []Rule      `json:"rules,omitempty"`   // nil: those of the Allowance
	Reservable *Reservable `json:"booking,omitempty"` // what the person may reserve; nil for nothing
}

// CapUse is what counts toward a cap, for a person or those who share it.
type CapUse struct {
	Cap       int                 `json:"cap"` // index into Allowance.Caps
	Limit     int64               `json:"limit"`
	Here      int64               `json:"here,omitempty"` // what counts on this host
	Elsewhere int64               `json:"elsewhere,omitempty"`
	Hosts     []snapshot.Hostname `json:"hosts,omitempty"`   // some of these
	SeenMS    int64               `json:"seen_ms,omitempty"` // age of the oldest look at these

	GPUs   []snapshot.DeviceIndex `json:"gpus,omitempty"`   // those that count on this host
	Booked []snapshot.Reservation `json:"booked,omitempty"` // the person's on other hosts that surely count
}

// Allow tells the host its policy. Only root may.
func (c Client) Allow(ctx context.Context, a Allowance) error {
	_, err := c.ask(ctx, Request{Allow: &a})
	return err
}

// Allowance returns what the host was told about the calling user; nil for nothing.
func (c Client) Allowance(ctx context.Context) (*Allowance, error) {
	answer, err := c.ask(ctx, Request{Allowance: true})
	return answer.Allowance, err
}

// AskedNote says who asked lately. Controllers watch it in the run folder.
var AskedNote = folder.Note[snapshot.Asked]{
	Name: "askers.json", Max: 256 << 10, Mode: 0o600, Invalid: snapshot.ErrInvalid,
}

type allowanceState struct {
	Allowance
	at, until time.Time
	replaced  chan struct{} // closed when a new one arrives
}

const (
	maxAllowance = 24 * time.Hour   // longest time that an allowance holds
	askedFor     = 10 * time.Minute // how long controllers see who asked
	lookWithin   = 3 * time.Second  // for the controller to look again
)

func (t *allowanceState) holds(now time.Time) bool { return t != nil && now.Before(t.until) }

// allow stores an allowance. One for a single host doesn't replace a fleet's.
func (s *Server) allow(a *Allowance, by callerProcess) (Answer, error) {
	if !by.isRoot() {
		return Answer{}, fmt.Errorf("%w: only root says what the policy allows", state.ErrNotOwner)
	}
	now := s.Now()
	holds := min(time.Duration(max(a.ForMS, 0)), maxAllowance/time.Millisecond) * time.Millisecond
	next := &allowanceState{*a, now, now.Add(holds), make(chan struct{})}
	s.allowing.Lock()
	defer s.allowing.Unlock()
	last := s.allowed.Load()
	if last.holds(now) && a.OneHost && !last.OneHost {
		return Answer{}, nil
	}
	next.Since, next.Expired = now, false
	if last.holds(now) && last.By == a.By && reflect.DeepEqual(last.Rules, a.Rules) {
		next.Since = last.Since
	}
	s.waits.offered(a.Offers, a.Possible)
	if s.allowed.Store(next); last != nil {
		close(last.replaced)
	}
	return Answer{}, nil
}

// allowance shows the caller only itself, and sums. It is empty if no controller is known.
func (s *Server) allowance(ctx context.Context, by callerProcess) Answer {
	if by.contained {
		return Answer{}
	}
	t := s.allowanceFor(ctx, by.account)
	if t == nil {
		return Answer{}
	}
	age := s.Now().Sub(t.at).Milliseconds()
	if !t.holds(s.Now()) {
		return Answer{Allowance: &Allowance{
			By: t.By, Contact: t.Contact, Page: t.Page, Caps: t.Caps, Since: t.until, Expired: true, AgeMS: age,
		}}
	}
	own := t.Allowance
	own.People, own.Asked, own.AgeMS = nil, 0, age
	if p, known := t.People[by.account]; known || by.account == 0 { // root has no caps
		p.Caps = slices.Clone(p.Caps)
		for i := range p.Caps {
			if p.Caps[i].Hosts != nil || p.Caps[i].Elsewhere > 0 {
				p.Caps[i].SeenMS += age
			}
			if t.cap(&p.Caps[i]).Together {
				p.Caps[i].GPUs = nil
			}
		}
		own.People = map[snapshot.UID]Person{by.account: p}
	}
	return Answer{Allowance: &own}
}

// allowanceFor asks the controller if it doesn't know uid yet; nil if no controller has spoken.
func (s *Server) allowanceFor(ctx context.Context, uid snapshot.UID) *allowanceState {
	t := s.allowed.Load()
	if t.holds(s.Now()) && uid != 0 {
		if _, known := t.People[uid]; !known {
			return s.lookAgain(ctx, uid)
		}
	}
	return t
}

// cap returns the cap of u; a missing one counts nothing.
func (a *Allowance) cap(u *CapUse) *Cap {
	if u.Cap < 0 || u.Cap >= len(a.Caps) {
		return &Cap{While: true}
	}
	return &a.Caps[u.Cap]
}

type asker struct {
	snapshot.Asker
	at time.Time
}

// addAsker adds who to the recent askers and returns them; s.asking is held.
func (s *Server) addAsker(who snapshot.Asker, now time.Time) snapshot.Asked {
	s.askers = slices.DeleteFunc(s.askers, func(a asker) bool { return a.UID == who.UID || now.Sub(a.at) > askedFor })
	s.askers = append(s.askers[max(0, len(s.askers)+1-snapshot.MaxAskers):], asker{who, now})
	s.asked = max(s.asked+1, uint64(max(0, now.UnixMilli()))) // it grows, also after a restart
	people := make([]snapshot.Asker, len(s.askers))
	for i, a := range s.askers {
		people[i] = a.Asker
	}
	return snapshot.Asked{Number: s.asked, People: people}
}

func (s *Server) lookAgain(ctx context.Context, uid snapshot.UID) *allowanceState {
	who := snapshot.Asker{UID: uid, Username: s.Username(ctx, uid)}
	s.asking.Lock() // also while writing, so that the newest note stays
	asked := s.addAsker(who, s.Now())
	written := s.Run != "" && AskedNote.Write(s.Run, asked) == nil
	s.asking.Unlock()
	if !written {
		return s.allowed.Load()
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	for {
		t := s.allowed.Load()
		if !t.holds(s.Now()) || t.Asked >= asked.Number {
			return t
		}
		select {
		case <-t.replaced:
		case <-ctx.Done():
			return t
		}
	}
}
