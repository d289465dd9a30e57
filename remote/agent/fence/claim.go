package fence

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Claim is what a controller says about its right to act.
type Claim struct {
	// Source is what counts the epochs: see FolderSource, ElectionSource and RunSource.
	Source string `json:"source"`
	Epoch  uint64 `json:"epoch"` // from 1 on
	// Controller is the id of the controller: the same after a restart.
	Controller string `json:"controller"`
	Name       string `json:"name"` // of the controller, for people
	// Start is another one at each start of a controller: from a backup or a clone of its state
	// folder two starts may count the same epoch. Empty is not known, as of earlier versions.
	Start string `json:"start,omitempty"`
	// TakeOver asks the host to change to Source from another one.
	TakeOver bool `json:"take_over,omitempty"`
	// Back asks the host to go on with a controller that released it and still runs: the
	// host was removed from its list, and is there again.
	Back bool `json:"back,omitempty"`
}

const (
	runPrefix      = "run:"
	folderPrefix   = "folder:"
	electionPrefix = "election:"
	maxSource      = 512 // bytes
	maxName        = 256 // bytes
	maxStart       = 64  // bytes
	maxShown       = 100 // characters of a name
)

// FolderSource is the source of a controller with a state folder of this id, which counts its
// starts.
func FolderSource(id string) string { return folderPrefix + id }

// ElectionSource is the source of controllers that elect a leader under a key of a cluster.
func ElectionSource(cluster uint64, key string) string {
	return fmt.Sprintf("%s%x/%s", electionPrefix, cluster, key)
}

// RunSource is the source of a run that keeps nothing. No later run could have it, so hosts
// don't note it, and admit it only while no controller that they noted acts.
func RunSource(id string) string { return runPrefix + id }

// The kinds of sources, for people.
const (
	KindEtcd   = "etcd"
	KindFolder = "folder"
	KindRun    = "run"
)

// Kind is what a source is.
func (c *Claim) Kind() string {
	switch {
	case c.elected():
		return KindEtcd
	case strings.HasPrefix(c.Source, folderPrefix):
		return KindFolder
	}
	return KindRun
}

// Noted reports whether hosts keep the claim, and then let no other controller act; false for none.
func (c *Claim) Noted() bool { return c != nil && !strings.HasPrefix(c.Source, runPrefix) }

// elected reports whether the claim is that of an elected leader.
func (c *Claim) elected() bool { return strings.HasPrefix(c.Source, electionPrefix) }

// ID names the controller of a claim, whatever its epoch; "" for none.
func (c *Claim) ID() string {
	if c == nil {
		return ""
	}
	return c.Source + " " + c.Controller
}

// Check returns an error if a claim is incomplete or longer than any controller's.
func (c *Claim) Check() error {
	known := c.elected() || strings.HasPrefix(c.Source, folderPrefix) || !c.Noted()
	switch {
	case !known || c.Epoch == 0 || c.Controller == "":
		return errors.New("a claim without a source, an epoch or a controller")
	case len(c.Source) > maxSource || len(c.Controller)+len(c.Name) > maxName || len(c.Start) > maxStart:
		return errors.New("a claim that is longer than any controller's")
	}
	return nil
}

// Note is the claim that a host admitted last.
type Note struct {
	Claim
	Since time.Time `json:"since"` // when it was first admitted, by the host's clock
	// Released says that the controller has ended: one with another source may follow.
	Released bool `json:"released,omitempty"`
	// Former are the sources before, the latest first. A start that was replaced can't take
	// over once more, also if it never got the answer to the first time.
	Former []Former `json:"former,omitempty"`
}

// Former is the last claim of a source that another one has replaced.
type Former struct {
	Source     string `json:"source"`
	Epoch      uint64 `json:"epoch"`
	Controller string `json:"controller"`
	Start      string `json:"start,omitempty"`
}

// maxFormer bounds the list: with the longest claims, escaped, the note stays below maxBytes.
const maxFormer = 8

// RefusedError says that a host does not do what a controller sent: another one acts there.
type RefusedError struct {
	By    string    // the name of the other controller
	Since time.Time // since when it acts there
	// Foreign says that the other one isn't of the same election or state folder: their epochs
	// can't be compared.
	Foreign bool
	// Ended says that the other controller has ended: only the next leader of its election may follow.
	Ended bool
}

// Controllers recognise a RefusedError by these prefixes: Refused begins all of them, Replaced
// those that are not Foreign.
const (
	Refused  = "refused: "
	Replaced = Refused + "replaced by "
)

func (e *RefusedError) Error() string {
	at := e.Since.UTC().Format(time.RFC3339)
	switch {
	case !e.Foreign:
		return fmt.Sprintf("%s%s at %s", Replaced, text.Quoted(e.By, maxShown), at)
	case e.Ended:
		return fmt.Sprintf("%s%s acted on this host, since %s, and has ended: the host waits for the next leader of its election", Refused, text.Quoted(e.By, maxShown), at)
	}
	return fmt.Sprintf("%s%s acts on this host, since %s", Refused, text.Quoted(e.By, maxShown), at)
}

// Admit decides on a claim, and returns the note to keep: the same one if there is nothing
// new. n is nil if the host noted none, and c if the controller claims nothing, as ad hoc
// runs and genv 1.4.3 do: they are refused only where an elected leader is noted. The error
// is a *RefusedError.
func (n *Note) Admit(c *Claim, now time.Time) (*Note, error) {
	switch {
	case c == nil && n != nil && n.elected():
		return n, n.refused(true)
	case c == nil, n == nil && !c.Noted(), n != nil && n.free() && !c.Noted():
		return n, nil
	case n == nil:
		return noteOf(n, c, now), nil
	case !c.Noted():
		return n, n.refused(true)
	case n.Source != c.Source && !c.TakeOver && !n.free():
		return n, n.refused(true)
	case n.Source != c.Source && n.hasReplaced(c):
		// An elected controller takes the text "replaced by" for a later leader of its own
		// election, so this refusal must not begin with it.
		return n, n.refused(c.elected())
	case n.Source != c.Source || c.Epoch > n.Epoch:
		return noteOf(n, c, now), nil
	case c.Back && n.Released && n.isOf(c):
		next := *n
		next.Released = false
		return &next, nil
	case !n.isOf(c) || n.Released:
		return n, n.refused(false)
	}
	return n, nil
}

// Release returns the note to keep when the controller with this claim has ended: the same
// one if there is nothing new.
func (n *Note) Release(c *Claim) *Note {
	if n == nil || n.Source != c.Source || !n.isOf(c) || n.Released {
		return n
	}
	next := *n
	next.Released = true
	return &next
}

// isOf reports whether the note is of the start of a controller that makes a claim of the same source.
func (n *Note) isOf(c *Claim) bool {
	return c.Epoch == n.Epoch && c.Controller == n.Controller && (c.Start == n.Start || c.Start == "" || n.Start == "")
}

// free reports whether any controller may be next. An election goes on when its leader has ended:
// the host waits for the next one.
func (n *Note) free() bool { return n.Released && !n.elected() }

// hasReplaced reports whether this start of a controller, or a later one of its source, acted
// here before, and was replaced by another source.
func (n *Note) hasReplaced(c *Claim) bool {
	i := slices.IndexFunc(n.Former, func(f Former) bool { return f.Source == c.Source })
	if i < 0 {
		return false
	}
	f := &n.Former[i]
	same := c.Start != "" && c.Start == f.Start // also if it was elected again
	if n.Released && (same || c.Epoch == f.Epoch && c.Controller == f.Controller) {
		return false
	}
	return same || c.Epoch <= f.Epoch
}

// noteOf is the note of a claim that follows n.
func noteOf(n *Note, c *Claim, now time.Time) *Note {
	next := &Note{Claim: *c, Since: now.Truncate(time.Second).UTC()}
	next.TakeOver, next.Back = false, false
	if n == nil {
		return next
	}
	next.Former = slices.DeleteFunc(slices.Clone(n.Former), func(f Former) bool { return f.Source == n.Source || f.Source == c.Source })
	if n.Source != c.Source {
		next.Former = slices.Insert(next.Former, 0, Former{n.Source, n.Epoch, n.Controller, n.Start})
	}
	next.Former = next.Former[:min(len(next.Former), maxFormer)]
	return next
}

func (n *Note) refused(foreign bool) error {
	return &RefusedError{By: cmp.Or(n.Name, n.Controller), Since: n.Since, Foreign: foreign, Ended: n.Released}
}
