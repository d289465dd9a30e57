package guard

import (
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

// Denial is what a user was denied on a device within a minute.
type Denial struct {
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

// Denials are the last denials of a host. The one that changed last is at the end.
type Denials struct {
	Schema  string   `json:"schema"`
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
	i := slices.IndexFunc(l.Denials, func(d Denial) bool {
		return d.UID == o.UID && d.Minor == o.Minor && d.Denied == o.Denied && now.Sub(d.First) < DenialWithin &&
			!now.Before(d.First)
	})
	d := Denial{First: now, Denied: o.Denied, UID: o.UID, Minor: o.Minor}
	isNew = i < 0
	if !isNew {
		d = l.Denials[i]
		l.Denials = slices.Delete(l.Denials, i, i+1)
	}
	d.Last, d.Count = now, d.Count+1
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

// Recent is how many opens were denied within the last hour, or would have been.
func (l *Denials) Recent(now time.Time) (n uint64) {
	for i := range l.Denials {
		if l.Denials[i].RecentAt(now) {
			n += l.Denials[i].Count
		}
	}
	return n
}

// RecentAt says whether the denial is one of the last hour.
func (d *Denial) RecentAt(now time.Time) bool { return now.Sub(d.Last) < time.Hour }

const (
	denialsFile    = "guard-denials.json"
	denialsSchema  = "genv.guard-denials/1"
	maxDenialsFile = 4 << 20 // bytes
)

// NewDenials is an empty list.
func NewDenials() Denials { return Denials{Schema: denialsSchema, Denials: []Denial{}} }

var denialsNote = folder.Note[Denials]{
	Name: denialsFile, Max: maxDenialsFile, Mode: 0o600, Invalid: snapshot.ErrInvalid, Check: (*Denials).check,
}

// WriteDenials replaces the denialsFile in root's run folder. Only root may read it.
func WriteDenials(dir string, l Denials) error { return denialsNote.Write(dir, l) }

// ReadDenials returns the list in the denialsFile; an empty one if there is none. The error wraps
// folder.ErrUnsafe if others than root could have written it, or snapshot.ErrInvalid.
func ReadDenials(dir string) (Denials, error) {
	l, err := denialsNote.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return NewDenials(), nil
	}
	return l, err
}

func (l *Denials) check() error {
	if len(l.Denials) > MaxDenials {
		return errors.New("it has too many denials")
	}
	for i := range l.Denials {
		if snapshot.CheckText("name", l.Denials[i].Name) != nil {
			return fmt.Errorf("denial %d has a name that can't be printed", i+1)
		}
	}
	return folder.CheckSchema(l.Schema, denialsSchema)
}
