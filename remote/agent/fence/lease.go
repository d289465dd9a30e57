// Package fence keeps a controller that was replaced from acting on a host.
//
// A controller that runs in a loop asks each host for a lease. Root's genv on the host writes it to the disk before it
// answers, and refuses every other controller. So a controller that was frozen or cut off does no harm when it is back.
//
//	file := &fence.LeaseFile{Path: fence.Path(os.Getenv), Now: time.Now}
//	err := file.Admit(request) // *RefusedError: another controller has the host
//
// What a request says is believed, since anyone who can send one is root on the host.
package fence

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// LeaseRequest asks for a lease. Its keys are those of the claims of earlier versions, so that hosts and controllers of
// different versions understand each other.
type LeaseRequest struct {
	Who        string `json:"source"`     // has the lease: see Election and Folder
	Epoch      uint64 `json:"epoch"`      // from 1 on, higher for each later leader, or start of the controller
	Controller string `json:"controller"` // not empty: by it, and by Start, earlier versions tell who has an epoch
	Name       string `json:"name"`       // of the controller, for people
	// Start differs at each start of a controller: controllers with copies of a state folder may have the same epoch.
	Start    string `json:"start,omitempty"`
	Seconds  int    `json:"seconds,omitempty"`   // how long the lease is wanted; earlier versions don't say it
	TakeOver bool   `json:"take_over,omitempty"` // even if somebody else has the lease
	Back     bool   `json:"back,omitempty"`      // tells earlier versions: it may get a lease again after giving it back
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
	// shortest is how long a lease lasts at least, and longest at most.
	shortest = time.Minute
	longest  = 24 * time.Hour
	// FreeAfter is how long others have to wait after the end of a lease that was not given back.
	FreeAfter = 24 * time.Hour
)

// Folder is the Who of controllers with the state folder of this id.
func Folder(id string) string { return folderPrefix + id }

// Run is the Who of a controller without a state folder. Hosts let it act or refuse it, but give it no lease.
func Run(id string) string { return runPrefix + id }

// Election is the Who of controllers that elect a leader under a key of an etcd cluster.
func Election(cluster uint64, key string) string {
	return fmt.Sprintf("%s%x/%s", electionPrefix, cluster, key)
}

// Elected reports whether the lease is that of an election.
func (r *LeaseRequest) Elected() bool { return strings.HasPrefix(r.Who, electionPrefix) }

// leases reports whether a lease is asked for. A single cycle, or a controller without a state folder, asks for none.
func (r *LeaseRequest) leases() bool { return r != nil && !strings.HasPrefix(r.Who, runPrefix) }

// ID names the controller of a request, whatever its epoch; "" for none.
func (r *LeaseRequest) ID() string {
	if r == nil {
		return ""
	}
	return r.Who + " " + r.Controller
}

// Check returns an error if a request is incomplete or longer than that of any controller.
func (r *LeaseRequest) Check() error {
	known := r.Elected() || strings.HasPrefix(r.Who, folderPrefix) || !r.leases()
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

// sameStart reports whether requests with the same owner and epoch are from one start of a controller.
func (r *LeaseRequest) sameStart(other *LeaseRequest) bool {
	return r.Controller == other.Controller && (r.Start == other.Start || r.Start == "" || other.Start == "")
}

// Lease is the lease that a host gave last.
type Lease struct {
	LeaseRequest
	Since     time.Time `json:"since"`          // when it was given first; this and Until are by the host's clock
	Until     time.Time `json:"until,omitzero"` // unless it is renewed; zero from an earlier version
	GivenBack bool      `json:"released,omitempty"`
	// Replaced is the controller from which the lease was taken over. Without a restart it can't take the lease over
	// again, even if it never got the answer to its own take-over.
	Replaced *Replacement `json:"replaced,omitempty"`
}

// Replacement is the controller that was replaced when somebody else took its lease over.
type Replacement struct {
	Who   string `json:"source"`
	Epoch uint64 `json:"epoch"`
	Start string `json:"start,omitempty"`
}

// isOf reports whether a request is of the controller that was replaced, or of an earlier one.
func (p *Replacement) isOf(r *LeaseRequest) bool {
	return p != nil && p.Who == r.Who && (r.Epoch <= p.Epoch || r.Start != "" && r.Start == p.Start)
}

// Runs reports whether the controller with the lease acts, as far as is known.
func (l *Lease) Runs(now time.Time) bool {
	return l != nil && !l.GivenBack && (l.Until.IsZero() || now.Before(l.Until))
}

// free reports whether a controller of another Who may get the next lease. A lease that the leader of an election gave
// back is for the next leader.
func (l *Lease) free(now time.Time) bool {
	return l.GivenBack && !l.Elected() || !l.Until.IsZero() && now.Sub(l.Until) >= FreeAfter
}

// RefusedError says that a host does not do what a controller sent: another one has the lease.
type RefusedError struct {
	Name  string    // of the other controller
	Since time.Time // since when it has the lease
	Until time.Time // when that ended; zero if it runs
	// Foreign says that the other one isn't of the same election or state folder: their epochs can't be compared.
	Foreign bool
}

// Error returns a text that earlier versions recognise: it begins with "refused: ", and if the error isn't Foreign with
// "refused: replaced by ".
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

// Admit decides on a request, and returns the lease to keep: the same one if there is nothing new. l is nil if the host
// gave none, and r if none is asked for. The error is a *RefusedError.
func (l *Lease) Admit(r *LeaseRequest, now time.Time) (*Lease, error) {
	switch {
	case !r.leases():
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
	l.TakeOver, l.Back = false, false // they are of one request only
	return l.until(r, now)
}

// renew returns the lease with a later end. In the first half of its time it returns l itself, so that not each request
// writes to the disk.
func (l *Lease) renew(r *LeaseRequest, now time.Time) *Lease {
	left := l.Until.Sub(now)
	if !l.GivenBack && left > r.duration()/2 && left <= r.duration() {
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

// GiveBack returns the lease to keep when the controller with this request has ended: l itself if it has no lease.
func (l *Lease) GiveBack(r *LeaseRequest) *Lease {
	if !l.isOf(r) || l.GivenBack {
		return l
	}
	next := *l
	next.GivenBack = true
	return &next
}

// isOf reports whether the start of a controller that makes a request has the lease.
func (l *Lease) isOf(r *LeaseRequest) bool {
	return l != nil && r.leases() && l.Who == r.Who && l.Epoch == r.Epoch && l.sameStart(r)
}

func (l *Lease) refused(foreign bool, now time.Time) error {
	e := &RefusedError{Name: cmp.Or(l.Name, l.Controller), Since: l.Since, Foreign: foreign}
	if !l.Runs(now) {
		e.Until = l.Until
	}
	return e
}
