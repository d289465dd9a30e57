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
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/exemption"
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
	// Notices has History list notices, and what a dry run would have done, too.
	Notices bool
}

// Damage counts the lines that are not records. They are skipped.
type Damage struct {
	Lines int
	First string // where the first of them is, "FILE:LINE"
}

func (d *Damage) add(name string, line int) {
	d.First = cmp.Or(d.First, fmt.Sprintf("%s:%d", name, line))
	d.Lines++
}

// Scan reads a log and its rotated files, the oldest record first. A log that
// does not exist yet has no records.
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

// scanFile reads the records of one file, one per line.
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
				damage.add(name, n)
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

// openRead opens a file for reading. It follows no link and doesn't block.
func openRead(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// Matches says whether the filter selects a record.
func (f *Filter) Matches(r *Record) bool {
	return (f.User == "" || r.User == f.User || r.UID != nil && strconv.FormatUint(uint64(*r.UID), 10) == string(f.User)) &&
		(f.Host == "" || r.Host == f.Host) &&
		(f.PID == 0 || r.PID == f.PID) &&
		(f.Rule == "" || slices.Contains(r.rules(), f.Rule)) &&
		!r.Time.Before(f.Since) && (f.Until.IsZero() || r.Time.Before(f.Until))
}

// rules are those of a record, each once, in the order of its findings.
func (r *Record) rules() []enforce.Rule {
	var list []enforce.Rule
	if r.Rule != "" {
		list = append(list, r.Rule)
	}
	for _, id := range r.IDs {
		if rule := ruleOf(id); rule != "" && !slices.Contains(list, rule) {
			list = append(list, rule)
		}
	}
	return list
}

// ruleOf is the rule of a finding, with which its id begins; empty for an id that is not
// of a finding.
func ruleOf(id string) enforce.Rule {
	rule, _, _ := strings.Cut(id, "/")
	if !slices.Contains(Rules, rule) {
		return ""
	}
	return enforce.Rule(rule)
}

// Rules are the names of all rules, sorted.
var Rules = exemption.Rules()
