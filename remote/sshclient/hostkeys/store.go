package hostkeys

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
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

// Place is a line of a known_hosts file.
type Place struct {
	File string
	Line int
}

func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// maxFile bounds what is read of one file, in bytes.
const maxFile = 64 << 20

// read joins the valid lines of all files, so that the library, which sorts keys
// by file name, keeps the order of the configuration.
func read(files []string, log zerolog.Logger) (*DB, error) {
	var lines [][]byte
	var places []Place
	for _, file := range files {
		content, err := readFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot read the known hosts: %w", err)
		}
		number := 0
		for line := range bytes.Lines(content) {
			number++
			line, err := clean(line)
			if err != nil {
				log.Warn().Str("file", file).Int("line", number).Err(err).Msg("known_hosts: line skipped")
			}
			if line != nil {
				lines, places = append(lines, line), append(places, Place{file, number})
			}
		}
	}
	return parse(lines, places, log)
}

func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if name != os.DevNull && !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is not a regular file of at most %d MiB", name, maxFile>>20)
	}
	return os.ReadFile(name)
}

// clean converts the names of a line to lower case, as OpenSSH does, and returns
// nil for a line without an entry.
func clean(line []byte) ([]byte, error) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] == '#' {
		return nil, nil
	}
	if _, _, _, _, _, err := ssh.ParseKnownHosts(line); err != nil {
		return nil, err
	}
	fields := bytes.Fields(line)
	names := 0
	if line[0] == '@' { // a marker
		names = 1
	}
	if len(fields) < names+2 {
		return nil, errors.New("no key")
	}
	if fields[names][0] != '|' { // not hashed
		fields[names] = bytes.ToLower(fields[names])
	}
	return bytes.Join(fields, []byte(" ")), nil
}

var atLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`knownhosts: \S+?:(\d+): `) })

// parse has the library read the lines. A line that the library refuses is blanked,
// and the others are read again.
func parse(lines [][]byte, places []Place, log zerolog.Logger) (*DB, error) {
	for range maxRefused {
		db, err := load(lines)
		if err == nil {
			return &DB{known: db, places: places}, nil
		}
		m := atLine().FindStringSubmatch(err.Error())
		if m == nil {
			return nil, err
		}
		number, _ := strconv.Atoi(m[1])
		if number < 1 || number > len(lines) || len(lines[number-1]) == 0 {
			return nil, err
		}
		at := places[number-1]
		log.Warn().Str("file", at.File).Int("line", at.Line).Msg("known_hosts: line skipped: " + err.Error()[len(m[0]):])
		lines[number-1] = nil
	}
	return nil, fmt.Errorf("%s: more than %d bad lines", places[0].File, maxRefused)
}

// maxRefused bounds the work on a file that is not a known_hosts file.
const maxRefused = 100

// load passes the lines to the library, which only reads files by name, in a file
// in memory.
func load(lines [][]byte) (*knownhosts.HostKeyDB, error) {
	fd, err := unix.MemfdCreate("known_hosts", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory file for known hosts: %w", err)
	}
	file := os.NewFile(uintptr(fd), "known_hosts")
	defer func() { _ = file.Close() }() // the file is only in memory
	if _, err := file.Write(append(bytes.Join(lines, []byte("\n")), '\n')); err != nil {
		return nil, fmt.Errorf("memory file for known hosts: %w", err)
	}
	return knownhosts.NewDB(fmt.Sprintf("/proc/self/fd/%d", fd))
}
