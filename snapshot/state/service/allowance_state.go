package service

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// AskedNote is where root's service notes who asked lately, in the run folder, which controllers watch.
var AskedNote = folder.Note[snapshot.Asked]{
	Name: "asked.json", Max: 256 << 10, Mode: 0o600, Invalid: snapshot.ErrInvalid,
}

type allowanceState struct {
	Allowance
	at, until time.Time
	replaced  chan struct{} // closed when the host is told again
}

const (
	// maxAllowance is how long an allowance holds at most.
	maxAllowance = 24 * time.Hour
	// askedFor is how long a controller hears of somebody who asked.
	askedFor = 10 * time.Minute
	// lookWithin is how long a controller may take to look again.
	lookWithin = 3 * time.Second
)

func (t *allowanceState) holds(now time.Time) bool { return t != nil && now.Before(t.until) }

// allow notes what who enforces a policy says. A single host's says nothing against a fleet's.
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

// allowance is that of who asks, and nothing about others but sums; none if no controller is known.
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
	if p, known := t.People[by.account]; known || by.account == 0 { // nothing is refused to root
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

// allowanceFor is what is known of somebody, after the controller was asked if needed; nil for nothing.
func (s *Server) allowanceFor(ctx context.Context, uid snapshot.UID) *allowanceState {
	t := s.allowed.Load()
	if t.holds(s.Now()) && uid != 0 {
		if _, known := t.People[uid]; !known {
			return s.lookAgain(ctx, uid)
		}
	}
	return t
}

// cap is the cap of a use; one that doesn't exist counts nothing.
func (a *Allowance) cap(u *CapUse) *Cap {
	if u.Cap < 0 || u.Cap >= len(a.Caps) {
		return &Cap{While: true}
	}
	return &a.Caps[u.Cap]
}

type askers struct {
	mu   sync.Mutex
	last uint64
	list []asker // the last one last
}

type asker struct {
	snapshot.Asker
	at time.Time
}

// add adds somebody, and returns who asked lately; a.mu is held.
func (a *askers) add(who snapshot.Asker, now time.Time) (asked snapshot.Asked) {
	a.list = slices.DeleteFunc(a.list, func(one asker) bool { return one.UID == who.UID || now.Sub(one.at) > askedFor })
	a.list = append(a.list[max(0, len(a.list)+1-snapshot.MaxAskers):], asker{who, now})
	a.last = max(a.last+1, uint64(max(0, now.UnixMilli()))) // it grows, also after a restart
	asked.Number = a.last
	for _, one := range a.list {
		asked.People = append(asked.People, one.Asker)
	}
	return asked
}

// lookAgain has the enforcer of the policy look here again, and waits for what it tells then. It returns what is known.
func (s *Server) lookAgain(ctx context.Context, uid snapshot.UID) *allowanceState {
	who := snapshot.Asker{UID: uid, Username: s.Username(ctx, uid)}
	s.askers.mu.Lock() // also while it is written, so that the newest note stays
	asked := s.askers.add(who, s.Now())
	written := s.Run != "" && AskedNote.Write(s.Run, asked) == nil
	s.askers.mu.Unlock()
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
