package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// Denial is what a user was denied on a device within a minute. guard-denials.json has no user names.
type Denial struct {
	First  time.Time    `json:"first"`
	Last   time.Time    `json:"last"`
	Count  uint64       `json:"count"`  // at least
	Denied bool         `json:"denied"` // false if the guard only watched
	UID    snapshot.UID `json:"uid"`
	// Subordinate: the last process had a subordinate uid of that account.
	Subordinate bool                  `json:"subordinate,omitempty"`
	PID         snapshot.PID          `json:"pid,omitempty"`  // of the last one; 0 if unknown
	Name        string                `json:"name,omitempty"` // as the process calls itself
	Minor       int                   `json:"minor"`
	Index       *snapshot.DeviceIndex `json:"index,omitempty"`
	UUID        snapshot.GPUUUID      `json:"uuid,omitempty"`
	User        snapshot.Username     `json:"user,omitempty"`
}

// Denials are a host's last ones, in the order of their last change.
type Denials struct {
	Schema  string   `json:"schema"`
	Dropped uint64   `json:"dropped,omitempty"` // denials without room
	Denials []Denial `json:"denials"`
}

const (
	DenialWithin = time.Minute // the time in which opens of a user, device and kind count as one denial
	// MaxDenials limits the kept denials, and MaxDenialsOfUser those of one user.
	MaxDenials       = 1024
	MaxDenialsOfUser = 128
)

// Add counts an open, given without times and count. It returns its denial, and whether that is new.
func (l *Denials) Add(open Denial, now time.Time) (_ Denial, isNew bool) {
	i := slices.IndexFunc(l.Denials, func(d Denial) bool {
		return d.UID == open.UID && d.Minor == open.Minor && d.Denied == open.Denied &&
			now.Sub(d.First) < DenialWithin && !now.Before(d.First)
	})
	d := open
	d.First, d.Last, d.Count, isNew = now, now, 1, i < 0
	if !isNew {
		d.First, d.Count = l.Denials[i].First, l.Denials[i].Count+1
		l.Denials = slices.Delete(l.Denials, i, i+1)
	}
	l.Denials = append(l.Denials, d)
	l.makeRoom()
	return d, isNew
}

func (l *Denials) makeRoom() {
	counts := map[snapshot.UID]int{}
	for i := range l.Denials {
		counts[l.Denials[i].UID]++
	}
	most := l.Denials[len(l.Denials)-1].UID
	if counts[most] <= MaxDenialsOfUser {
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

// Recent counts denied opens of the last hour, including those that were only watched.
func (l *Denials) Recent(now time.Time) (n uint64) {
	for i := range l.Denials {
		if l.Denials[i].RecentAt(now) {
			n += l.Denials[i].Count
		}
	}
	return n
}

// RecentAt reports whether it is of the last hour.
func (d *Denial) RecentAt(now time.Time) bool { return now.Sub(d.Last) < time.Hour }

const (
	denialsFile    = "guard-denials.json"
	denialsSchema  = "genv.guard-denials/1"
	maxDenialsFile = 4 << 20 // bytes
)

// NewDenials returns an empty list.
func NewDenials() Denials { return Denials{Schema: denialsSchema, Denials: []Denial{}} }

var denialsNote = folder.Note[Denials]{
	Name: denialsFile, Max: maxDenialsFile, Mode: 0o600, Invalid: snapshot.ErrInvalid, Check: (*Denials).check,
}

// WriteDenials replaces the list in root's run folder, which only root may read.
func WriteDenials(dir string, l Denials) error { return denialsNote.Write(dir, l) }

// ReadDenials returns an empty list without a file. Errors wrap folder.ErrUnsafe or snapshot.ErrInvalid.
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

// denialWriter keeps the list of denials and passes new ones on. Other opens go to the watch.OpenLog.
type denialWriter struct {
	*Keeper
	reader  proc.ReaderProcess // remembers processes that don't answer: reading one in execve(2) can take forever
	opens   *watch.OpenLog
	writing sync.WaitGroup // what writes opens

	mu      sync.Mutex
	devices []hardware.BusDevice // name the minors
	list    Denials
	added   bool // to the list since it was written
}

const writePause = 200 * time.Millisecond

func startDenialWriter(ctx context.Context, k *Keeper) *denialWriter {
	d := &denialWriter{Keeper: k, opens: watch.NewOpenLog(k.RunDir)}
	var err error
	if d.list, err = ReadDenials(k.RunDir); err != nil {
		k.Log.Warn().Err(err).Msg("the denials so far can't be read: they are forgotten")
		d.list = NewDenials()
	}
	d.writing.Go(func() {
		d.opens.Run(ctx, func(err error) {
			k.Log.Error().Err(err).Msg("opens of GPUs can't be reported to those who wait for them")
		})
	})
	return d
}

func (d *denialWriter) end() {
	d.write()
	d.writing.Wait()
}

// take handles one event after the other: the kernel keeps and counts waiting ones.
func (d *denialWriter) take(e DeviceOpen) {
	// Root's opens without a PID are those of every look's nvidia-smi.
	if e.Kind != Denied && (e.PID != 0 || e.UID != 0) {
		d.opens.Add(e.PID)
	}
	if e.Kind != Denied && e.Kind != WouldDeny {
		return
	}
	uid, _ := proc.FS{Accounts: d.Accounts}.Account(e.UID) // the range's id while that isn't known
	if uid == proc.UnknownAccount {
		uid = e.UID
	}
	open := Denial{UID: uid, Subordinate: uid != e.UID, PID: e.PID, Minor: e.Minor, Denied: e.Kind == Denied}
	if stat, err := (proc.FS{Reader: &d.reader}).Stat(e.PID); err == nil && e.PID != 0 &&
		snapshot.CheckText("name", stat.Name) == nil {
		open.Name = stat.Name
	}
	if denial, isNew := d.add(open); isNew {
		d.pass(&denial)
	}
}

func (d *denialWriter) add(open Denial) (_ Denial, isNew bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, device := range d.devices {
		if device.Minor != nil && *device.Minor == open.Minor {
			open.Index, open.UUID = &device.Index, device.UUID
		}
	}
	if !d.added {
		d.added = true
		time.AfterFunc(writePause, d.write)
	}
	return d.list.Add(open, time.Now())
}

func (d *denialWriter) know(devices []hardware.BusDevice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices = devices
}

func (d *denialWriter) write() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.added {
		return
	}
	d.added = false
	if err := WriteDenials(d.RunDir, d.list); err != nil {
		d.Log.Error().Err(err).Msg("the denials can't be written")
	}
}

func (d *denialWriter) pass(denial *Denial) {
	what := "would be denied"
	if denial.Denied {
		what = "denied"
	}
	event := d.Log.Info().Uint32("uid", uint32(denial.UID)).Int32("pid", int32(denial.PID)).Str("program", denial.Name).
		Int("minor", denial.Minor)
	if denial.Index != nil {
		event = event.Int("device", int(*denial.Index))
	}
	event.Msg(what)
	if d.Denied != nil {
		d.Denied(*denial)
	}
}
