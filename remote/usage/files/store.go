package files

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Options are what a Store is like.
type Options struct {
	In *time.Location // of its days
	// KeepHours and KeepDays are for how long hours and days are kept; 0 for DefaultKeepHours and
	// DefaultKeepDays.
	KeepHours, KeepDays time.Duration
	// UID is the uid of a user; nil, or false, for users who get no part of their own.
	UID func(user string) (uid uint32, ok bool)
}

// The defaults of Options.
const (
	DefaultKeepHours = 35 * 24 * time.Hour
	DefaultKeepDays  = 731 * 24 * time.Hour
)

const (
	factsName   = "facts.json"
	factsSchema = "genv.usage.facts/1"
	allName     = "all"
)

// facts say for which time there is something.
type facts struct {
	Schema string      `json:"schema"`
	Begun  int64       `json:"begun"`
	Last   int64       `json:"last_hour"` // the latest with something
	Until  int64       `json:"until"`
	Ended  bool        `json:"ended,omitempty"`
	Hours  int64       `json:"hours_since,omitempty"` // what is earlier is kept by day
	Gaps   []store.Gap `json:"gaps,omitempty"`
}

// Store is a folder with usage. It is not safe for concurrent use.
type Store struct {
	top, days *folder.Folder // nil for a user's own part
	factsIn   source
	daysIn    source
	options   Options
	writes    bool
	lock      *os.File
	waiting   map[uint32]sums // users' own parts that could not be written
}

// Open opens a folder to read and write, and creates it if it is missing. Only root, or the user
// whose folders above it are, may open it so. It fails if another process has it open.
func Open(path string, options Options) (*Store, error) {
	options.KeepHours = cmp.Or(options.KeepHours, DefaultKeepHours)
	options.KeepDays = cmp.Or(options.KeepDays, DefaultKeepDays)
	if err := os.MkdirAll(path, 0o711); err != nil {
		return nil, err
	}
	top, err := folder.OpenTrusted(path)
	if err != nil {
		return nil, err
	}
	s := &Store{top: top, options: options, writes: true, waiting: make(map[uint32]sums)}
	if err := s.openToWrite(); err != nil {
		_ = s.Close() // nothing was written
		return nil, err
	}
	return s, nil
}

func (s *Store) openToWrite() (err error) {
	if err := s.top.Own(0o711); err != nil {
		return err
	}
	if s.lock, err = s.top.Lock("lock", time.Second); err != nil {
		return fmt.Errorf("another genv keeps the usage of this host: %w", err)
	}
	if s.days, err = s.top.PrivateSub(allName); err != nil {
		return err
	}
	s.factsIn, s.daysIn = in(s.top), in(s.days)
	return s.days.Chmod(0o700)
}

// OpenToRead opens what is kept of all users. It is for who may write it. A folder that doesn't
// exist, or has nothing yet, is fs.ErrNotExist.
func OpenToRead(path string, zone *time.Location) (*Store, error) {
	top, err := folder.OpenTrusted(path)
	if err != nil {
		return nil, err
	}
	s := &Store{top: top, factsIn: in(top), options: Options{In: zone}}
	if _, err = s.factsIn(factsName); err == nil {
		s.days, err = top.Sub(allName)
	}
	if err != nil {
		_ = s.Close() // nothing was written
		return nil, err
	}
	s.daysIn = in(s.days)
	return s, nil
}

// OpenOwn opens the part of a user. A user of whom nothing is kept has an empty one.
func OpenOwn(path string, uid uint32, zone *time.Location) (*Store, error) {
	s := &Store{factsIn: at(path), daysIn: at(filepath.Join(path, fmt.Sprint(uid))), options: Options{In: zone}}
	if _, err := s.factsIn(factsName); err != nil {
		return nil, err
	}
	return s, nil
}

// Close closes the folder.
func (s *Store) Close() error {
	if s.days != nil {
		s.days.Close()
	}
	if s.top != nil {
		s.top.Close()
	}
	if s.lock != nil {
		return s.lock.Close()
	}
	return nil
}

func (s *Store) facts() (f facts, err error) {
	data, err := s.factsIn(factsName)
	if errors.Is(err, fs.ErrNotExist) {
		return facts{Schema: factsSchema}, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil && f.Schema != factsSchema {
		err = fmt.Errorf("%w: it is %q", store.ErrNewer, f.Schema)
	}
	if err != nil {
		return f, fmt.Errorf("%s: %w", factsName, err)
	}
	return f, nil
}

// Mark implements store.Store.
func (s *Store) Mark(context.Context) (store.Mark, error) {
	f, err := s.facts()
	return store.Mark{Until: f.Until, Ended: f.Ended}, err
}

var errReadOnly = errors.New("it is open to be read")

// Add implements store.Store.
func (s *Store) Add(_ context.Context, e *store.Entry) error {
	if !s.writes {
		return errReadOnly
	}
	f, err := s.facts()
	if err != nil {
		return err
	}
	if f.Begun == 0 || e.Since < f.Begun {
		f.Begun = e.Since
	}
	f.Until, f.Ended = e.Until, e.Ended
	f.Gaps = append(slices.Clip(f.Gaps), e.Gaps...)
	all := make(sums, len(e.Sums))
	for key := range e.Sums {
		all[key] = e.Sums[key]
		f.Last = max(f.Last, key.Hour)
	}
	if err := s.write(s.days, all, &f); err != nil {
		return translated(err)
	}
	s.addOwn(all)
	return nil
}

// write adds sums to the files of their days. All files are written before the first one gets
// its name. f, if it isn't nil, is written too.
func (s *Store) write(dir *folder.Folder, all sums, f *facts, allow ...uint32) error {
	days := make(map[int64]sums)
	for key := range all {
		one, start := all[key], usage.DayOf(key.Hour, s.options.In)
		if days[start] == nil {
			days[start] = make(sums)
		}
		days[start].add(key, &one)
	}
	var staged []folder.Staged
	defer func() { dir.Discard(staged...) }()
	for start, more := range days {
		file, err := s.stage(dir, start, more)
		if err != nil {
			return err
		}
		staged = append(staged, file)
	}
	if f != nil {
		data, err := json.Marshal(f)
		if err == nil {
			err = s.publishFacts(data, dir, &staged)
		}
		return err
	}
	return publish(dir, &staged, allow...)
}

func (s *Store) stage(dir *folder.Folder, start int64, more sums) (folder.Staged, error) {
	name := nameOf(start, s.options.In)
	all, whole, err := readDay(in(dir), name)
	if errors.Is(err, store.ErrDamaged) {
		all, whole, err = make(sums), false, dir.MoveAside(name, time.Unix(start, 0))
	}
	if err != nil {
		return folder.Staged{}, err
	}
	if whole {
		more = more.wholeDay(start)
	}
	for key := range more {
		one := more[key]
		all.add(key, &one)
	}
	data, err := all.encode(whole)
	if err != nil {
		return folder.Staged{}, err
	}
	return dir.Stage(name, data, 0o600, true)
}

// publishFacts gives all files their names, the facts last.
func (s *Store) publishFacts(data []byte, dir *folder.Folder, staged *[]folder.Staged) error {
	file, err := s.top.Stage(factsName, data, 0o644, true)
	if err != nil {
		return err
	}
	if err = publish(dir, staged); err == nil {
		err = s.top.Publish(file)
	}
	if err != nil {
		s.top.Discard(file)
		return err
	}
	return s.top.Sync()
}

// publish gives files their names, and has users read them.
func publish(dir *folder.Folder, staged *[]folder.Staged, allow ...uint32) error {
	for len(*staged) > 0 {
		file := (*staged)[0]
		if err := dir.Publish(file); err != nil {
			return err
		}
		*staged = (*staged)[1:]
		for _, uid := range allow {
			if err := folder.AllowToRead(dir.Join(file.Name), uid); err != nil {
				return err
			}
		}
	}
	return dir.Sync()
}
