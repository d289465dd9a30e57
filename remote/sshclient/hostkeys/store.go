package hostkeys

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// Store keeps what was read from known_hosts files until they change. It is
// safe for concurrent use.
type Store struct {
	log     zerolog.Logger
	mu      sync.Mutex
	loaded  map[string]*DB
	writing sync.Mutex // one append at a time
}

// NewStore returns a Store that warns of bad lines on log.
func NewStore(log zerolog.Logger) *Store {
	return &Store{log: log, loaded: map[string]*DB{}}
}

// Load reads the files, first come first asked; one that does not exist is
// empty. What was read before is used again while no file has changed.
func (s *Store) Load(files ...string) (*DB, error) {
	stamp, err := stampOf(files)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.Join(files, "\x00")
	if db := s.loaded[name]; db != nil && db.stamp == stamp {
		return db, nil
	}
	db, err := read(files, s.log)
	if err != nil {
		return nil, err
	}
	db.stamp = stamp
	s.loaded[name] = db
	return db, nil
}

// stampOf changes when one of the files does.
func stampOf(files []string) (string, error) {
	var b strings.Builder
	for _, file := range files {
		info, err := os.Stat(file)
		switch {
		case os.IsNotExist(err):
			b.WriteString("-;")
		case err != nil:
			return "", fmt.Errorf("cannot read the known hosts: %w", err)
		default:
			fmt.Fprintf(&b, "%d %d;", info.ModTime().UnixNano(), info.Size())
		}
	}
	return b.String(), nil
}
