package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Filter selects records; what is empty selects all.
type Filter struct {
	User  snapshot.Username // or the number of a uid
	Host  snapshot.Hostname
	PID   snapshot.PID
	Since time.Time
}

// Damage is lines that are no records, and are passed over: how many, and the
// first of them.
type Damage struct {
	Lines int
	First string // "FILE:LINE"
}

// Scan reads a log and the rotated files before it, the oldest record first.
// There is no log yet: that is no error, and no record.
func Scan(path string, each func(*Record) error) (Damage, error) {
	var damage Damage
	var files []string
	for n := 0; ; n++ {
		_, err := os.Lstat(rotated(path, n))
		if errors.Is(err, fs.ErrNotExist) && n > 0 {
			break
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return damage, err
		}
		files = append(files, rotated(path, n))
	}
	slices.Reverse(files)
	for _, name := range files {
		if err := scanFile(name, &damage, each); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return damage, err
		}
	}
	return damage, nil
}

func scanFile(name string, damage *Damage, each func(*Record) error) error {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return scan(f, name, damage, each)
}

// scan reads records, a line each.
func scan(r io.Reader, name string, damage *Damage, each func(*Record) error) error {
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := scanLine(line, fmt.Sprintf("%s:%d", name, n), damage, each); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

func scanLine(line []byte, place string, damage *Damage, each func(*Record) error) error {
	var record Record
	if err := json.Unmarshal(line, &record); err == nil && record.Kind != "" {
		return each(&record)
	}
	damage.Lines++
	if damage.Lines == 1 {
		damage.First = place
	}
	return nil
}

// Matches says whether a record is asked for.
func (q *Filter) Matches(r *Record) bool {
	return (q.User == "" || r.User == q.User || r.UID != nil && strconv.FormatUint(uint64(*r.UID), 10) == string(q.User)) &&
		(q.Host == "" || r.Host == q.Host) &&
		(q.PID == 0 || r.PID == q.PID) &&
		!r.Time.Before(q.Since)
}
