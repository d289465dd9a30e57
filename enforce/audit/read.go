package audit

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// Filter selects records; an empty field selects all.
type Filter struct {
	User  snapshot.Username // or a uid as decimal text
	Host  snapshot.Hostname
	PID   snapshot.PID
	Rule  enforce.Rule // of a finding that it is about, or that led to it
	Since time.Time
	Until time.Time // exclusive; zero for none

	Notices bool // History lists notices, and what a dry run would have done, too
}

// Damage counts lines that aren't records. They are skipped.
type Damage struct {
	Lines int
	First string // where the first of them is, "FILE:LINE"
}

// Scan reads a log and its rotated files, oldest record first. A missing log has no records.
func Scan(path string, each func(*Record) error) (Damage, error) {
	var damage Damage
	oldest := 0
	for ; ; oldest++ {
		_, err := os.Lstat(rotated(path, oldest+1))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return damage, err
		}
	}
	for n := oldest; n >= 0; n-- {
		if err := scanFile(rotated(path, n), &damage, each); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return damage, err
		}
	}
	return damage, nil
}

func scanFile(name string, damage *Damage, each func(*Record) error) error {
	f, err := openRead(name)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var record Record
			if json.Unmarshal(line, &record) != nil || record.Kind == "" {
				damage.First = cmp.Or(damage.First, fmt.Sprintf("%s:%d", name, n))
				damage.Lines++
			} else if err := each(&record); err != nil {
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

// openRead follows no link and doesn't block.
func openRead(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// Matches reports whether the filter selects a record.
func (f *Filter) Matches(r *Record) bool {
	return (f.User == "" || r.User == f.User || r.UID != nil && fmt.Sprint(*r.UID) == string(f.User)) &&
		(f.Host == "" || r.Host == f.Host) &&
		(f.PID == 0 || r.PID == f.PID) &&
		(f.Rule == "" || slices.Contains(r.rules(), f.Rule)) &&
		!r.Time.Before(f.Since) && (f.Until.IsZero() || r.Time.Before(f.Until))
}

func (r *Record) rules() []enforce.Rule {
	var list []enforce.Rule
	if r.Rule != "" {
		list = append(list, r.Rule)
	}
	for _, id := range r.IDs {
		if rule := enforce.RuleOf(id); rule != "" && !slices.Contains(list, rule) {
			list = append(list, rule)
		}
	}
	return list
}

// ErrNotALog is wrapped for a file of something else.
var ErrNotALog = errors.New("the file exists and is not a record of genv")

// Damaged lines may come before a record.
const (
	maxBytes = 4 << 20
	maxLines = 100
)

// Check returns nil if a file is missing, empty or has records, otherwise ErrNotALog. It follows no link.
func Check(path string) error {
	f, err := openRead(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%s: it is a symbolic link: %w", path, ErrNotALog)
	case err != nil:
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: it is not a regular file: %w", path, ErrNotALog)
	}
	lines := bufio.NewScanner(io.LimitReader(f, maxBytes))
	lines.Buffer(nil, maxBytes+1)
	n := 0
	for ; n < maxLines && lines.Scan(); n++ {
		var record Record
		if json.Unmarshal(lines.Bytes(), &record) == nil && slices.Contains(kinds, record.Kind) &&
			!record.Time.IsZero() {
			return nil
		}
	}
	if err := lines.Err(); err != nil || n == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", path, ErrNotALog)
}
