package container

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const (
	recordsFolder     = "containers"
	recordsLock       = ".lock" // in the folder; root holds it to write or remove a record
	recordsLockWithin = 5 * time.Second
)

// RecordsDir is the folder of records in root's run folder.
func RecordsDir(run string) string { return filepath.Join(run, recordsFolder) }

func recordNote(id string) folder.Note[Record] {
	const maxRecordFile = 16 << 10
	return folder.Note[Record]{
		Name: id + ".json", Max: maxRecordFile, Mode: 0o644, Invalid: ErrInvalidRecord,
		Check: func(r *Record) error {
			switch {
			case r.Schema != recordSchema:
				return fmt.Errorf("%w: schema %d", ErrInvalidRecord, r.Schema)
			case r.ID != id:
				return fmt.Errorf("%w: it is about another container", ErrInvalidRecord)
			}
			return r.check()
		},
	}
}

// WriteRecord writes or replaces a container's record, as root. An error leaves the old record.
func WriteRecord(run string, r Record) error {
	if err := r.check(); err != nil {
		return err
	}
	parent, err := folder.MakeTrusted(run)
	if err != nil {
		return err
	}
	defer parent.Close()
	d, err := parent.PrivateSub(recordsFolder, 0o755)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Hold(recordsLock, recordsLockWithin); err != nil {
		return err
	}
	r.Schema = recordSchema
	return recordNote(r.ID).Put(d, r)
}

// ReadRecord reads a record that only root can have written. An error other than fs.ErrNotExist means unknown.
func ReadRecord(run, id string) (Record, error) {
	if !IsID(id) {
		return Record{}, errNoID
	}
	return recordNote(id).Read(RecordsDir(run))
}

// RemoveRecord removes a record, as root; unless same is nil, only one about the same process, since a restarted
// container keeps its record.
// process.
func RemoveRecord(run, id string, same *Record) error {
	if !IsID(id) {
		return errNoID
	}
	d, err := folder.OpenTrusted(RecordsDir(run))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Hold(recordsLock, recordsLockWithin); err != nil {
		return err
	}
	if same != nil { // under the lock
		now, err := ReadRecord(run, id)
		if err != nil || now.PID != same.PID || now.Start != same.Start {
			return nil
		}
	}
	return d.Remove(recordNote(id).Name)
}

// ListRecords returns the sorted ids of containers with a record.
func ListRecords(run string) ([]string, error) { return ListNotes(RecordsDir(run)) }

// ListNotes returns the ids of files ID.json in a folder, which may be missing.
func ListNotes(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		if id, found := strings.CutSuffix(e.Name(), ".json"); found && IsID(id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// ErrInvalidRecord means that WriteRecord would not accept a record.
var ErrInvalidRecord = errors.New("invalid record of a container")

var errNoID = fmt.Errorf("%w: its id is not 64 hexadecimal digits", ErrInvalidRecord)

// ProofToken means that the user's shim had a one-time token of root's service, bound to its socket peer's uid.
const ProofToken = "token"

const recordSchema = 1

// Record is the hook's knowledge about a container.
type Record struct {
	Schema    int            `json:"schema"`
	ID        string         `json:"id"`            // see IsID
	EID       snapshot.EnvID `json:"eid"`           // in which it was started; empty for none
	UID       *snapshot.UID  `json:"uid,omitempty"` // of the user for whom it was started; nil without proof
	Proof     string         `json:"proof"`         // ProofToken, or empty
	Runtime   string         `json:"runtime"`       // the engine, such as "docker"; empty if unknown
	StartedAt time.Time      `json:"started_at"`
	// PID and Start are the container's init, or the process that makes it: see RunningInits. 0 for none.
	PID   snapshot.PID       `json:"pid,omitempty"`
	Start snapshot.StartTime `json:"start,omitempty"`
}

func (r *Record) check() error {
	const maxRuntime = 64 // bytes
	switch {
	case !IsID(r.ID):
		return errNoID
	case r.EID != "" && snapshot.Claim(string(r.EID)) != r.EID:
		return fmt.Errorf("%w: no environment has its eid", ErrInvalidRecord)
	case r.Proof != "" && r.Proof != ProofToken:
		return fmt.Errorf("%w: an unknown proof", ErrInvalidRecord)
	case (r.Proof == "") != (r.UID == nil):
		return fmt.Errorf("%w: a uid and its proof come together", ErrInvalidRecord)
	case len(r.Runtime) > maxRuntime || strings.Trim(r.Runtime, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "":
		return fmt.Errorf("%w: its runtime is not the name of one", ErrInvalidRecord)
	case r.PID < 0 || (r.PID == 0) != (r.Start == 0):
		return fmt.Errorf("%w: a process and its start time come together", ErrInvalidRecord)
	case r.StartedAt.IsZero():
		return fmt.Errorf("%w: it has no time", ErrInvalidRecord)
	}
	return nil
}

// IsID says whether a text is a container's ID, and a file's name: 64 hexadecimal digits in lower case.
func IsID(id string) bool { return len(id) == 64 && strings.Trim(id, "0123456789abcdef") == "" }

// RunningInits knows the recorded inits, which keep environments of other users alive. It reads the records only after
// a change, and is safe for concurrent use.
type RunningInits struct {
	Run string

	mu      sync.Mutex
	changed time.Time // the folder's last change
	stable  bool      // read so late that no other change has the same time
	inits   []Record
}

// Keeps is for disk.Config. start detects a reused PID; 0 is unknown, and any counts.
func (k *RunningInits) Keeps(eid snapshot.EnvID, pid snapshot.PID, start snapshot.StartTime) bool {
	const tick = 100 * time.Millisecond // longer than the resolution of file times
	info, err := os.Stat(RecordsDir(k.Run))
	if err != nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.stable || !info.ModTime().Equal(k.changed) {
		k.changed, k.stable = info.ModTime(), time.Since(info.ModTime()) > tick
		k.inits = initsIn(k.Run)
	}
	return slices.ContainsFunc(k.inits, func(r Record) bool {
		return r.EID == eid && r.PID == pid && (start == 0 || start == r.Start)
	})
}

func initsIn(run string) (inits []Record) {
	ids, _ := ListRecords(run) // an unreadable folder keeps nothing
	for _, id := range ids {
		if r, err := ReadRecord(run, id); err == nil && r.PID != 0 {
			inits = append(inits, r)
		}
	}
	return inits
}

// PruneRecords removes, as root, the records of containers whose init has ended, as after a SIGKILL of the runtime.
// start returns a process's start time, 0 for none; ok is false if unknown.
func PruneRecords(run string, start func(snapshot.PID) (_ snapshot.StartTime, ok bool)) error {
	ids, err := ListRecords(run)
	for _, id := range ids {
		r, readErr := ReadRecord(run, id)
		if readErr != nil || r.PID == 0 {
			continue
		}
		if now, ok := start(r.PID); !ok || now == r.Start {
			continue
		}
		err = cmp.Or(err, RemoveRecord(run, id, &r))
	}
	return err
}
