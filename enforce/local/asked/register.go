package asked

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Register is the list of a host. It is safe for concurrent use, by other processes too.
type Register struct {
	Path      string // of the file: see Path
	BootID    string // the list of another boot is dropped
	SinceBoot func() (time.Duration, error)
}

// Path is the file of the list: in root's run folder.
func Path(getenv func(string) string) string {
	return filepath.Join(disk.RunDir(getenv), disk.RootFile(getenv, "asked"))
}

// Begin notes the processes that are to be asked to end, except those that were asked before: these have an Earlier in
// their place, and must not be asked. After an error nothing is noted, and other controllers may ask the processes
// once more. The caller passes to end which processes got the signal. The others may be asked by the next order.
func (r *Register) Begin(request EndRequest, processes []proc.ID) (
	end func(signalled []proc.ID) error, _ []*Earlier, _ error,
) {
	request.By, request.Order = short(request.By), short(request.Order)
	turn, found := rand.Text(), make([]*Earlier, len(processes))
	err := r.update(func(list []askedProcess, now time.Duration) []askedProcess {
		known := make(map[proc.ID][]*askedProcess, len(list)) // what is not over, the latest last
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
		return r.update(func(list []askedProcess, now time.Duration) []askedProcess {
			return signalled(list, turn, got, now)
		})
	}
	return end, found, err
}

// short replaces an id of any length; "" for none.
func short(id string) string {
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// file is the file.
type askedList struct {
	Schema    string         `json:"schema"`
	BootID    string         `json:"boot_id"`
	Processes []askedProcess `json:"processes"`
}

const (
	schema     = "genv.host.asked/1"
	maxBytes   = 2 << 20     // of maxEntries, each at most 250
	lockWithin = time.Second // how long another genv may hold the lock: it only writes a small file
)

// update changes the list, which change may overwrite.
func (r *Register) update(change func(list []askedProcess, now time.Duration) []askedProcess) (err error) {
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
	note := folder.Note[askedList]{Name: name, Max: maxBytes, Mode: 0o600, Invalid: errOver, Check: r.check}
	known, err := note.ReadIn(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errOver) {
		return err
	}
	return note.Put(dir, askedList{schema, r.BootID, change(known.Processes, now)})
}

// errOver means that a list is replaced: it is of another boot, or damaged.
var errOver = errors.New("not a list of this boot")

func (r *Register) check(f *askedList) error {
	if f.BootID != r.BootID {
		return errOver
	}
	return folder.CheckSchema(f.Schema, schema)
}
