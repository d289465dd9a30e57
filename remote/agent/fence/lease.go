// Package fence keeps a controller that was replaced from acting on a host.
//
// A controller that runs in a loop asks each host for a lease. Root's genv there writes it to the disk before it
// answers, and refuses other controllers. So a controller that is back after a freeze or a cut does no harm.
//
//	file := &fence.LeaseFile{Path: fence.Path(os.Getenv), Now: time.Now}
//	err := file.Admit(request) // *RefusedError: another controller has the host
//
// Requests are trusted: anyone who can send one is root on the host.
package fence

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// LeaseRequest asks for a lease. It has the JSON keys of earlier versions.
type LeaseRequest struct {
	Who        string `json:"source"`     // see Election, Folder and Run
	Epoch      uint64 `json:"epoch"`      // from 1 on; higher for each later leader or start of the controller
	Controller string `json:"controller"` // not empty: earlier versions tell by it, and by Start, who has an epoch
	Name       string `json:"name"`       // of the controller, for people
	// Start differs for each start of a controller: copies of a state folder may have the same epoch.
	Start    string `json:"start,omitempty"`
	Seconds  int    `json:"seconds,omitempty"`   // of the lease; missing from earlier versions
	TakeOver bool   `json:"take_over,omitempty"` // even if another controller has the lease
	Back     bool   `json:"back,omitempty"`      // for earlier versions: allows a lease again after giving it back
}

const (
	folderPrefix   = "folder:"
	electionPrefix = "election:"
	runPrefix      = "run:"

	maxWho   = 512 // bytes
	maxName  = 256 // bytes
	maxStart = 64  // bytes
	maxShown = 100 // characters of a name
)

// The times of leases.
const (
	shortest  = time.Minute
	longest   = 24 * time.Hour
	FreeAfter = 24 * time.Hour // how long others wait after a lease that was not given back
)

// Folder is the Who of a controller with a state folder.
func Folder(id string) string { return folderPrefix + id }

// Run is the Who of a single round, or of a controller without a state folder, which gets no lease.
func Run(id string) string { return runPrefix + id }

// Election is the Who of controllers that elect a leader by a key of an etcd cluster.
func Election(cluster uint64, key string) string {
	return fmt.Sprintf("%s%x/%s", electionPrefix, cluster, key)
}

// Elected reports whether the controller is from an election.
func (r *LeaseRequest) Elected() bool { return strings.HasPrefix(r.Who, electionPrefix) }

// Leases reports whether it asks for a lease: not with the Who of Run.
func (r *LeaseRequest) Leases() bool { return r != nil && !strings.HasPrefix(r.Who, runPrefix) }

// ID identifies the controller, whatever its epoch; "" for none.
func (r *LeaseRequest) ID() string {
	if r == nil {
		return ""
	}
	return r.Who + " " + r.Controller
}

// Check returns an error if a request is incomplete or too long.
func (r *LeaseRequest) Check() error {
	known := r.Elected() || strings.HasPrefix(r.Who, folderPrefix) || !r.Leases()
	switch {
	case !known || r.Epoch == 0 || r.Controller == "":
		return errors.New("a lease without an owner, an epoch or a controller")
	case len(r.Who) > maxWho || len(r.Controller)+len(r.Name) > maxName || len(r.Start) > maxStart:
		return errors.New("a lease that is longer than that of any controller")
	}
	return nil
}

func (r *LeaseRequest) duration() time.Duration {
	seconds := min(max(r.Seconds, int(shortest/time.Second)), int(longest/time.Second))
	return time.Duration(seconds) * time.Second
}

// sameStart reports whether requests with the same Who and Epoch are from one start of a controller.
func (r *LeaseRequest) sameStart(other *LeaseRequest) bool {
	return r.Controller == other.Controller && (r.Start == other.Start || r.Start == "" || other.Start == "")
}

// Lease is the last lease of a host. Its times are by the host's clock.
type Lease struct {
	LeaseRequest
	Since     time.Time `json:"since"`          // when it was first given
	Until     time.Time `json:"until,omitzero"` // unless it is renewed; zero from an earlier version
	GivenBack bool      `json:"released,omitempty"`
	// Replaced had the lease before a take-over. It can't take it over again without a restart, even if it never got
	// the answer to its own take-over.
	Replaced *Replacement `json:"replaced,omitempty"`
}

// Replacement is a controller that lost its lease to a take-over.
type Replacement struct {
	Who   string `json:"source"`
	Epoch uint64 `json:"epoch"`
	Start string `json:"start,omitempty"`
}

// isOf reports whether a request is from that controller, or from an earlier one.
func (p *Replacement) isOf(r *LeaseRequest) bool {
	return p != nil && p.Who == r.Who && (r.Epoch <= p.Epoch || r.Start != "" && r.Start == p.Start)
}

// Runs reports whether the controller with the lease still acts, as far as is known.
func (l *Lease) Runs(now time.Time) bool {
	return l != nil && !l.GivenBack && (l.Until.IsZero() || now.Before(l.Until))
}

// free reports whether a controller of another Who may get the lease. One that the leader of an election gave back is
// for the next leader.
func (l *Lease) free(now time.Time) bool {
	return l.GivenBack && !l.Elected() || !l.Until.IsZero() && now.Sub(l.Until) >= FreeAfter
}

// RefusedError says that a host refuses a controller: another one has the lease.
type RefusedError struct {
	Name    string    // of the other controller
	Since   time.Time // when it got the lease
	Until   time.Time // when the lease ended; zero if it runs
	Foreign bool      // it is of another election or state folder, so epochs can't be compared
}

// Error returns a text that earlier versions recognise: it begins with "refused: ", and unless the error is Foreign
// with "refused: replaced by ".
func (e *RefusedError) Error() string {
	name, since := text.Quoted(e.Name, maxShown), e.Since.UTC().Format(time.RFC3339)
	switch {
	case !e.Foreign:
		return fmt.Sprintf("refused: replaced by %s at %s", name, since)
	case !e.Until.IsZero():
		return fmt.Sprintf(
			"refused: %s acted on this host, since %s, and was last seen about %s: the host waits a day for it",
			name, since, e.Until.UTC().Format(time.RFC3339),
		)
	}
	return fmt.Sprintf("refused: %s acts on this host, since %s", name, since)
}

// Admit decides on a request, nil for none, and returns the lease to keep: l if nothing changes. The error is a
// *RefusedError.
func (l *Lease) Admit(r *LeaseRequest, now time.Time) (*Lease, error) {
	switch {
	case !r.Leases():
		if l.Runs(now) {
			return l, l.refused(true, now)
		}
		return l, nil
	case l == nil:
		return give(r, now), nil
	case l.Who != r.Who:
		return l.follow(r, now)
	case r.Epoch > l.Epoch:
		return give(r, now), nil
	case r.Epoch < l.Epoch || !r.sameStart(&l.LeaseRequest):
		return l, l.refused(false, now)
	}
	return l.renew(r, now), nil
}

func (l *Lease) follow(r *LeaseRequest, now time.Time) (*Lease, error) {
	if l.free(now) {
		return give(r, now), nil
	}
	if !r.TakeOver || l.Replaced.isOf(r) {
		return l, l.refused(true, now)
	}
	next := give(r, now)
	next.Replaced = &Replacement{l.Who, l.Epoch, l.Start}
	return next, nil
}

func give(r *LeaseRequest, now time.Time) *Lease {
	l := &Lease{LeaseRequest: *r, Since: now.Truncate(time.Second).UTC()}
	l.TakeOver, l.Back = false, false // these are of one request only
	return l.until(r, now)
}

// renew returns the lease with a later end. In the first half of its time it returns l, so that few requests write to
// the disk.
func (l *Lease) renew(r *LeaseRequest, now time.Time) *Lease {
	if left := l.Until.Sub(now); !l.GivenBack && left > r.duration()/2 && left <= r.duration() {
		return l
	}
	next := *l
	next.GivenBack, next.Seconds = false, r.Seconds
	return next.until(r, now)
}

func (l *Lease) until(r *LeaseRequest, now time.Time) *Lease {
	l.Until = now.Add(r.duration()).Truncate(time.Second).UTC()
	return l
}

// GiveBack returns the lease to keep when the controller with this request has ended: l if it doesn't have it.
func (l *Lease) GiveBack(r *LeaseRequest) *Lease {
	if !l.isOf(r) || l.GivenBack {
		return l
	}
	next := *l
	next.GivenBack = true
	return &next
}

func (l *Lease) isOf(r *LeaseRequest) bool {
	return l != nil && r.Leases() && l.Who == r.Who && l.Epoch == r.Epoch && l.sameStart(r)
}

func (l *Lease) refused(foreign bool, now time.Time) error {
	e := &RefusedError{Name: cmp.Or(l.Name, l.Controller), Since: l.Since, Foreign: foreign}
	if !l.Runs(now) {
		e.Until = l.Until
	}
	return e
}
