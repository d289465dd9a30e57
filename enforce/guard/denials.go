package guard

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Open is an open of a device that was denied, or would have been.
type Open struct {
	UID snapshot.UID // the account
	// Subordinate: the process had a subordinate uid of the account, which is not let in.
	Subordinate bool
	PID         snapshot.PID // 0 if the kernel doesn't report it
	Name        string       // of the process's program, empty if unknown; a claim of the process
	Minor       int
	// Index and UUID are those of the device; nil and empty if unknown.
	Index  *snapshot.DeviceIndex
	UUID   snapshot.GPUUUID
	Denied bool // else it was allowed, since the guard only watches
}

// Denial is what a user was denied on a device within a minute. Neither of its numbers is used again
// within an Epoch of the list.
type Denial struct {
	ID    uint64    `json:"id"`  // the same as long as the denial grows
	Seq   uint64    `json:"seq"` // higher after each change
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	Count uint64    `json:"count"` // at least: the kernel reports at most ten a second
	// Denied is false if the guard only watched.
	Denied bool         `json:"denied"`
	UID    snapshot.UID `json:"uid"`
	// Subordinate says that the last process had a subordinate uid of that account.
	Subordinate bool                  `json:"subordinate,omitempty"`
	PID         snapshot.PID          `json:"pid,omitempty"`  // of the last one
	Name        string                `json:"name,omitempty"` // of its program, as the process calls itself
	Minor       int                   `json:"minor"`
	Index       *snapshot.DeviceIndex `json:"index,omitempty"`
	UUID        snapshot.GPUUUID      `json:"uuid,omitempty"`
}

// Denials are the last denials of a host, in ascending order of Seq.
type Denials struct {
	Schema string `json:"schema"`
	// Epoch changes when numbers begin at 1 again: what was seen before says nothing then.
	Epoch   string   `json:"epoch"`
	LastSeq uint64   `json:"last_seq"`
	Dropped uint64   `json:"dropped,omitempty"` // denials that there was no room for
	Denials []Denial `json:"denials"`
}

const (
	// DenialWithin is how long opens of a user, device and kind count as one denial.
	DenialWithin = time.Minute
	// MaxDenials is how many denials are kept, and MaxDenialsOfUser how many of one user.
	MaxDenials       = 1024
	MaxDenialsOfUser = 128
)

// Add counts an open. It returns its denial, and whether that is a new one.
func (l *Denials) Add(o Open, now time.Time) (_ Denial, isNew bool) {
	l.LastSeq++
	i := slices.IndexFunc(l.Denials, func(d Denial) bool {
		return d.UID == o.UID && d.Minor == o.Minor && d.Denied == o.Denied && now.Sub(d.First) < DenialWithin && !now.Before(d.First)
	})
	d := Denial{ID: l.LastSeq, First: now, Denied: o.Denied, UID: o.UID, Minor: o.Minor}
	isNew = i < 0
	if !isNew {
		d = l.Denials[i]
		l.Denials = slices.Delete(l.Denials, i, i+1)
	}
	d.Seq, d.Last, d.Count = l.LastSeq, now, d.Count+1
	d.Subordinate = o.Subordinate
	d.PID, d.Name, d.Index, d.UUID = o.PID, o.Name, o.Index, o.UUID
	l.Denials = append(l.Denials, d)
	l.makeRoom()
	return d, isNew
}

// makeRoom removes the oldest denial of the user with the most, if there are too many.
func (l *Denials) makeRoom() {
	latest := l.Denials[len(l.Denials)-1].UID
	counts := map[snapshot.UID]int{}
	for i := range l.Denials {
		counts[l.Denials[i].UID]++
	}
	most := latest
	if counts[latest] <= MaxDenialsOfUser {
		if len(l.Denials) <= MaxDenials {
			return
		}
		for uid, n := range counts {
			if n > counts[most] || n == counts[most] && uid > most {
				most = uid
			}
		}
	}
	oldest := slices.IndexFunc(l.Denials, func(d Denial) bool { return d.UID == most })
	l.Denials = slices.Delete(l.Denials, oldest, oldest+1)
	l.Dropped++
}

// Since are the denials that changed after seq, the one that changed last at the end.
func (l *Denials) Since(seq uint64) []Denial {
	at, _ := slices.BinarySearchFunc(l.Denials, seq+1, func(d Denial, seq uint64) int { return cmp.Compare(d.Seq, seq) })
	return l.Denials[at:]
}

const (
	denialsFile    = "guard-denials.json"
	denialsSchema  = "genv.guard-denials/1"
	maxDenialsFile = 4 << 20 // bytes
)

// NewDenials is an empty list with an epoch of its own.
func NewDenials() Denials {
	return Denials{Schema: denialsSchema, Epoch: rand.Text(), Denials: []Denial{}}
}

var denialsNote = folder.Note[Denials]{
	Name: denialsFile, Max: maxDenialsFile, Mode: 0o600, Invalid: snapshot.ErrInvalid, Check: (*Denials).check,
}

// WriteDenials replaces the denialsFile in root's run folder. Only root may read it.
func WriteDenials(dir string, l Denials) error { return denialsNote.Write(dir, l) }

// ReadDenials returns the list in the denialsFile; an empty one, with a new epoch, if there is none. The
// error wraps folder.ErrUnsafe if others than root could have written it, or
// snapshot.ErrInvalid.
func ReadDenials(dir string) (Denials, error) {
	l, err := denialsNote.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return NewDenials(), nil
	}
	return l, err
}

func (l *Denials) check() error {
	if l.Epoch == "" || len(l.Denials) > MaxDenials {
		return errors.New("it has no epoch, or too many denials")
	}
	last := uint64(0)
	for i := range l.Denials {
		d := &l.Denials[i]
		if d.Seq <= last || d.Seq > l.LastSeq || d.ID == 0 || d.ID > d.Seq || snapshot.CheckText("name", d.Name) != nil {
			return fmt.Errorf("denial %d", d.ID)
		}
		last = d.Seq
	}
	return folder.CheckSchema(l.Schema, denialsSchema)
}
