package hostkeys

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/rs/zerolog"
)

// Store caches known_hosts files until they change. It is safe for concurrent use.
type Store struct {
	log     zerolog.Logger
	mu      sync.Mutex
	loaded  map[string]*DB
	writing sync.Mutex // one append at a time
}

// NewStore returns a Store that logs warnings about bad lines.
func NewStore(log zerolog.Logger) *Store {
	return &Store{log: log, loaded: map[string]*DB{}}
}

// Load reads the files, in the order of lookup; one that does not exist is empty.
// The result is cached until a file changes.
func (s *Store) Load(files ...string) (*DB, error) {
	stamp := stampOf(files)
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
func stampOf(files []string) string {
	var b strings.Builder
	for _, file := range files {
		if info, err := os.Stat(file); err != nil {
			fmt.Fprintf(&b, "%v;", err)
		} else {
			fmt.Fprintf(&b, "%d %d;", info.ModTime().UnixNano(), info.Size())
		}
	}
	return b.String()
}
