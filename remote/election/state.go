package election

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Role is the role of a controller in an election.
type Role string

// The roles.
const (
	Standby Role = "standby" // it waits until no other controller leads
	Leading Role = "leading" // it may act
	Expired Role = "expired" // it led, but can't reach etcd: another controller may lead
)

// Leadership is a controller's claim to lead, with times by Options.Clock. It is a value.
type Leadership struct {
	leads bool          // it made the key, and doesn't know that the key is gone
	lease int64         // of the key
	epoch uint64        // the revision with the key
	until time.Duration // when the lease may end
}

// Role returns the role at a time.
func (s Leadership) Role(now time.Duration) Role {
	switch {
	case !s.leads:
		return Standby
	case now < s.until:
		return Leading
	}
	return Expired
}

// Won is the state after the key was made. The request for its lease was sent at sent.
func (s Leadership) Won(lease int64, epoch uint64, sent, ttl time.Duration) Leadership {
	return Leadership{leads: true, lease: lease, epoch: epoch, until: sent + ttl}
}

// Renewed is the state after an answer to a renewal. A late one doesn't make an expired leader lead again.
func (s Leadership) Renewed(lease int64, sent, ttl, now time.Duration) Leadership {
	if s.Role(now) == Leading && lease == s.lease {
		s.until = max(s.until, sent+ttl)
	}
	return s
}

// Lost is the state when the key is gone, or belongs to another controller.
func (s Leadership) Lost() Leadership { return Leadership{} }

// Left is how long it still leads without an answer of etcd; 0 if it doesn't lead.
func (s Leadership) Left(now time.Duration) time.Duration { return max(0, s.until-now) }

// Candidate is a controller in an election, as others see it.
type Candidate struct {
	ID   string `json:"id"`   // the same after a restart
	Name string `json:"name"` // for people
}

// Leader is the content of a leader's key.
type Leader struct {
	Candidate
	Since  time.Time `json:"since"`            // by its own clock
	Policy string    `json:"policy,omitempty"` // the same for equal policies; empty if unknown
}

const schema = "genv.election/1"

type storedLeader struct {
	Schema string `json:"schema"`
	Leader
}

func encode(l Leader) ([]byte, error) { return json.Marshal(storedLeader{schema, l}) }

// decode reads the value of a leader's key. Whatever the value is, a controller leads.
func decode(value []byte) Leader {
	var c storedLeader
	if err := json.Unmarshal(value, &c); err != nil || c.Schema != schema {
		return Leader{Candidate: Candidate{Name: "a controller of another version"}}
	}
	return c.Leader
}

// LeaderKey is the key that makes its creator the leader.
func LeaderKey(key string) string { return key + "/leader" }

// LeaderOf reads the leader and its epoch; nil if no controller leads. cluster is the id of etcd's cluster.
func LeaderOf(ctx context.Context, c *etcd.Gateway, key string) (leader *Leader, epoch, cluster uint64, err error) {
	entry, cluster, err := c.Look(ctx, LeaderKey(key))
	if err != nil || entry == nil {
		return nil, 0, cluster, err
	}
	leads := decode(entry.Value)
	return &leads, entry.Created, cluster, nil
}

// StatusDocument is a Status for people and programs.
type StatusDocument struct {
	Role  Role      `json:"role"`
	Since time.Time `json:"since"`
	Epoch uint64    `json:"epoch,omitempty"` // of a leader

	Leader      string    `json:"leader,omitempty"` // another controller that leads
	LeaderSince time.Time `json:"leader_since,omitzero"`
	OtherPolicy bool      `json:"other_policy,omitempty"` // that one has another policy

	Error    string    `json:"error,omitempty"`   // why etcd doesn't answer, or refuses
	Refused  bool      `json:"refused,omitempty"` // etcd answered so
	Answered time.Time `json:"answered,omitzero"` // when etcd answered last
	Memory   time.Time `json:"memory,omitzero"`   // when this leader wrote its memory last
	Unknown  bool      `json:"unknown,omitempty"` // this standby doesn't know yet which controller leads
}

// LeaderKnown reports whether a standby knows which controller leads, if any: etcd answered after it became one.
func (s *Status) LeaderKnown() bool {
	return s.Leader != nil || !s.Answered.IsZero() && !s.Answered.Before(s.Since)
}

// Shown returns the document of a Status.
func (s *Status) Shown() *StatusDocument {
	shown := &StatusDocument{Role: s.Role, Since: s.Since.Truncate(time.Second).UTC(), Epoch: s.Epoch}
	if !s.Answered.IsZero() {
		shown.Answered = s.Answered.Truncate(time.Second).UTC()
	}
	if s.Leader != nil {
		shown.Leader, shown.LeaderSince, shown.OtherPolicy = s.Leader.Name, s.Leader.Since.UTC(), s.OtherPolicy
	}
	shown.Unknown = s.Role == Standby && !s.LeaderKnown()
	if s.Err != nil {
		shown.Error, shown.Refused = s.Err.Error(), etcd.Refused(s.Err)
	}
	return shown
}

const maxShown = 100 // characters of a name

// String is one line, such as: standby; "ann on jump-1, process 7" leads since 2026-03-01T10:00:00Z.
func (s *StatusDocument) String() string {
	switch {
	case s.Role == Leading && s.Error == "":
		return fmt.Sprintf("this controller leads since %s (epoch %d)", s.Since.Format(time.RFC3339), s.Epoch)
	case s.Role == Leading && s.Refused:
		return "etcd refuses to extend this controller's term: it acts until that ends"
	case s.Role == Leading:
		return "etcd doesn't answer: this controller acts until its term ends"
	case s.Role == Expired && s.Refused:
		return "etcd refuses what this controller asks; another controller may lead, so this one only watches"
	case s.Role == Expired && s.Error == "": // it was stopped, like a frozen virtual machine
		return "the term of this controller may have ended, and another one may lead: this one only watches"
	case s.Role == Expired:
		return "etcd doesn't answer; another controller may lead, so this one only watches until etcd answers"
	case s.Refused:
		return "standby; etcd refuses what this controller asks, so it can't lead"
	case s.Error != "":
		return "standby; etcd doesn't answer, so it isn't known which controller leads"
	case s.Unknown:
		return "standby; etcd hasn't said yet which controller leads"
	case s.Leader == "":
		return "standby; no controller leads"
	}
	line := "standby; " + text.Quoted(s.Leader, maxShown) + " leads"
	if !s.LeaderSince.IsZero() {
		line += " since " + s.LeaderSince.Format(time.RFC3339)
	}
	if s.OtherPolicy {
		line += ", with another policy: if this controller takes over, other rules apply"
	}
	return line
}

// SinceBoot serves as Options.Clock: it can't be set and, unlike time.Since, continues while the machine sleeps.
func SinceBoot() time.Duration {
	up, err := proc.SinceBoot()
	if err != nil {
		panic(err) // Linux has had this clock since 2.6.39
	}
	return up
}

// Term is the term of a leader: an epoch of a cluster of etcd. It is zero for a controller that doesn't lead.
type Term struct{ Epoch, Cluster uint64 }

// Roles has what a controller does as a standby and as the leader.
type Roles struct {
	// StandBy is called while the controller doesn't lead, and Lead for each term. Their contexts end with the role.
	// With that of Lead, remote.MayBegin fails once another controller may lead, even if this program was stopped and
	// hasn't noticed yet.
	StandBy func(context.Context) error
	Lead    func(context.Context, Term) error
	Changed func(Status) // called when the role, the epoch, the leader, or whether etcd answers, may have changed
}

// ErrNotLeading is why a controller that was replaced sends nothing.
var ErrNotLeading = remote.Errorf(remote.Cancelled, "not sent: this controller doesn't lead any more")

// errElected is why a standby that was elected doesn't wait for hosts any longer.
var errElected = remote.Errorf(remote.Timeout, "it didn't answer before this controller had to act: %w", remote.ErrLate)

// resignAfter bounds how long a leader leads after its end was requested, to store results for the next leader.
const resignAfter = 4 * time.Second

// Run campaigns and calls roles until ctx ends or one returns early, and returns the role's error. A leader resigns.
func (e *Elector) Run(ctx context.Context, roles Roles) error {
	longer, resign := remote.WithGracePeriod(ctx, resignAfter)
	var campaign sync.WaitGroup
	campaign.Go(func() { e.Campaign(longer) })
	defer campaign.Wait()
	defer resign()
	for {
		if turned, err := e.follow(ctx, e.term(), roles); !turned || ctx.Err() != nil {
			return err
		}
	}
}

func (e *Elector) follow(ctx context.Context, term Term, roles Roles) (turned bool, err error) {
	role, why := roles.StandBy, errElected
	if term != (Term{}) {
		why = ErrNotLeading
		role = func(ctx context.Context) error {
			return roles.Lead(remote.While(ctx, func() error {
				if e.LeadsWith(term.Epoch) {
					return nil
				}
				return ErrNotLeading
			}), term)
		}
	}
	during, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { e.watch(during, term, roles.Changed, func() { end(why) }) })
	err = role(during)
	turned = during.Err() != nil || e.term() != term // watch may not have noticed yet
	end(nil)
	watch.Wait()
	return turned, err
}

func (e *Elector) watch(ctx context.Context, term Term, changed func(Status), end func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.changed:
		}
		changed(e.Status())
		if e.term() != term {
			end()
			return
		}
	}
}

func (e *Elector) term() Term {
	s := e.Status()
	if s.Role != Leading {
		return Term{}
	}
	return Term{s.Epoch, s.Cluster}
}
