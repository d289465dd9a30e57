// Package ending keeps the list of a host's processes that were asked to end, by whom, and until when. So a process
// gets SIGTERM and a grace only once, even if another controller takes over.
//
//	register := &ending.Register{Path: ending.Path(os.Getenv), BootID: boot, SinceBoot: proc.SinceBoot}
//	end, earlier, err := register.Begin(ending.EndRequest{By: controller, Order: id, Grace: grace}, processes)
//	// earlier[i] is nil: processes[i] may be asked now
//	err = end(signalled)
//
// The list is about this boot, so it isn't synced. It is written before a signal, and again afterwards.
package ending

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Register is the list of a host. It is safe for concurrent use, also by several processes.
type Register struct {
	Path      string // of the file: see Path
	BootID    string // the list of another boot is dropped
	SinceBoot func() (time.Duration, error)
}

// Path returns the file of the list, in root's run folder.
func Path(getenv func(string) string) string {
	return filepath.Join(disk.RunDir(getenv), disk.RootFile(getenv, "asked"))
}

// Begin notes the processes that will be asked to end. Those with an Earlier must not be asked again. The caller passes
// the signalled ones to end: the next order may ask the others. After an error nothing is noted.
func (r *Register) Begin(request EndRequest, processes []proc.ID) (
	end func(signalled []proc.ID) error, _ []*Earlier, _ error,
) {
	request.By, request.Order = short(request.By), short(request.Order)
	turn, found := rand.Text(), make([]*Earlier, len(processes))
	err := r.update(func(list []endingProcess, now time.Duration) []endingProcess {
		known := make(map[proc.ID][]*endingProcess, len(list)) // what is not over, the latest last
		for i := range list {
			if e := &list[i]; now < e.Until+after {
				known[e.ID] = append(known[e.ID], e)
			}
		}
		var mine []proc.ID
		for i, p := range processes {
			if found[i] = earlier(known[p], &request, now); found[i] == nil {
				mine = append(mine, p)
			}
		}
		return with(list, &request, turn, mine, now)
	})
	end = func(got []proc.ID) error {
		return r.update(func(list []endingProcess, now time.Duration) []endingProcess {
			return signalled(list, turn, got, now)
		})
	}
	return end, found, err
}

// short replaces an ID of any length.
func short(id string) string {
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

type endingList struct {
	Schema    string          `json:"schema"`
	BootID    string          `json:"boot_id"`
	Processes []endingProcess `json:"processes"`
}

const (
	schema     = "genv.host.asked/1"
	maxBytes   = 2 << 20     // of maxEntries, each at most 250
	lockWithin = time.Second // how long another genv may hold the lock: it only writes a small file
)

func (r *Register) update(change func(list []endingProcess, now time.Duration) []endingProcess) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("which processes were asked to end can't be noted, so another controller may ask them "+
				"once more: %w", err)
		}
	}()
	now, err := r.SinceBoot()
	if err != nil {
		return err
	}
	dir, err := folder.MakeTrusted(filepath.Dir(r.Path))
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(r.Path)
	if err := dir.Hold(name+".lock", lockWithin); err != nil {
		return err
	}
	note := folder.Note[endingList]{Name: name, Max: maxBytes, Mode: 0o600, Invalid: errOver, Check: r.check}
	known, err := note.ReadIn(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errOver) {
		return err
	}
	return note.Put(dir, endingList{schema, r.BootID, change(known.Processes, now)})
}

// errOver: the list is of another boot, or damaged.
var errOver = errors.New("not a list of this boot")

func (r *Register) check(f *endingList) error {
	if f.BootID != r.BootID {
		return errOver
	}
	return folder.CheckSchema(f.Schema, schema)
}

// Authority is the right to carry out an order.
type Authority struct {
	Name string // of the controller; "" if it isn't known
	// Hold keeps other controllers from replacing this one until release is called, or fails if one has. nil: none can.
	Hold func() (release func(), err error)
}

// EndRequest is an order that asks processes to end.
type EndRequest struct {
	By    string // the controller; "" if it isn't known
	Order string // the ID of the order; "" for none
	Grace time.Duration
}

// Earlier is an earlier order's request to a process, at the time of a new request.
type Earlier struct {
	Ago  time.Duration // since when it was asked
	Left time.Duration // until the end of its grace; negative once that is over
	Sent bool          // the process got the signal; otherwise the genv that was to send it may have been killed before
}

// Rest is how long an order waits for a process, and whether its next step may follow: only after SIGTERM and its whole
// grace. nil means that the order itself asked.
func (e *Earlier) Rest(grace time.Duration) (wait time.Duration, mayGoOn bool) {
	if e == nil {
		return grace, true
	}
	return max(0, min(grace, e.Left)), e.Sent && e.Left <= grace
}

// endingProcess is a process that was asked to end. Times are since the boot.
type endingProcess struct {
	proc.ID
	Turn  string        `json:"turn"` // names the execution
	By    string        `json:"by,omitempty"`
	Order string        `json:"report,omitempty"`
	Begun time.Duration `json:"begun_ns"`
	Until time.Duration `json:"until_ns"` // the end of the grace
	Sent  bool          `json:"sent,omitempty"`
}

const (
	// Other controllers leave a survivor alone for so long after its grace, like the first one.
	after      = time.Minute
	maxEntries = 4096 // of the list; the processes that are asked when it is full may be asked twice
)

// earlier returns the request that prevents another one; nil for none. The latest entry is last.
func earlier(entries []*endingProcess, r *EndRequest, now time.Duration) *Earlier {
	if len(entries) == 0 {
		return nil
	}
	twice := slices.ContainsFunc(entries, func(e *endingProcess) bool { return r.Order != "" && e.Order == r.Order })
	e := entries[len(entries)-1]
	if recent := e.Sent && e.By != r.By; !twice && now >= e.Until && !recent {
		return nil
	}
	return &Earlier{Ago: now - e.Begun, Left: e.Until - now, Sent: e.Sent}
}

func with(list []endingProcess, r *EndRequest, turn string, processes []proc.ID, now time.Duration) []endingProcess {
	list = slices.DeleteFunc(list, func(e endingProcess) bool { return now >= e.Until+after })
	for _, p := range processes[:min(len(processes), max(0, maxEntries-len(list)))] {
		list = append(list, endingProcess{
			ID: p, Turn: turn, By: r.By, Order: r.Order, Begun: now, Until: now + r.Grace,
		})
	}
	return list
}

// signalled marks the signalled processes of a turn, with the grace beginning now, and removes the others.
func signalled(list []endingProcess, turn string, processes []proc.ID, now time.Duration) []endingProcess {
	got := make(map[proc.ID]bool, len(processes))
	for _, p := range processes {
		got[p] = true
	}
	list = slices.DeleteFunc(list, func(e endingProcess) bool { return e.Turn == turn && !got[e.ID] })
	for i := range list {
		if e := &list[i]; e.Turn == turn {
			e.Sent, e.Until, e.Begun = true, e.Until+now-e.Begun, now
		}
	}
	return list
}
