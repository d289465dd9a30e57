package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Forgotten is what Forget found about a user.
type Forgotten struct {
	Records int // about the user, which are removed
	// Mentioned is how many other records have the name in a text, as that of a host that failed
	// or of another user's finding. They stay.
	Mentioned int
}

// forgetSuffix is that of the file that replaces another one. One that kill -9 left is overwritten.
const forgetSuffix = ".forget"

// Forget removes the records about a user from a log and its rotated files, one file after the
// other, each as a whole or not at all: if it ends early, it can be called again. A controller
// may write meanwhile. dryRun only counts.
func Forget(path string, user snapshot.Username, dryRun bool) (all Forgotten, err error) {
	// A rotation meanwhile gives files a higher number, so none is left out.
	for n := 0; ; n++ {
		found, err := forgetIn(path, n, user, dryRun)
		if n > 0 && errors.Is(err, fs.ErrNotExist) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all.Records += found.Records
		all.Mentioned += found.Mentioned
	}
}

// forgetIn rewrites one file. The lock of the log keeps it from being rotated or appended to.
func forgetIn(path string, n int, user snapshot.Username, dryRun bool) (Forgotten, error) {
	name := rotated(path, n)
	if _, err := os.Lstat(name); err != nil {
		return Forgotten{}, err
	}
	l := Log{Path: path, MaxBytes: math.MaxInt64}
	locked, _, err := l.open()
	if err != nil {
		return Forgotten{}, err
	}
	defer func() { _ = locked.Close() }() // nothing is written to it
	old, err := openRead(name)
	if err != nil {
		return Forgotten{}, err
	}
	defer old.Close()
	if err := checkOwn(old); err != nil {
		return Forgotten{}, fmt.Errorf("%s: %w", name, err)
	}
	var rest bytes.Buffer
	found, err := without(&rest, old, user)
	if err != nil || dryRun || found.Records == 0 {
		return found, err
	}
	return found, replace(name, old, rest.Bytes())
}

// without copies the lines that aren't about a user. What can't be read stays.
func without(to *bytes.Buffer, from io.Reader, user snapshot.Username) (found Forgotten, err error) {
	quoted, err := json.Marshal(user)
	if err != nil {
		return found, err
	}
	word := quoted[1 : len(quoted)-1]
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadBytes('\n')
		var r Record
		switch {
		case json.Unmarshal(line, &r) == nil && isAbout(&r, user):
			found.Records++
		case mentions(line, word):
			found.Mentioned++
			fallthrough
		default:
			to.Write(line)
		}
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
	}
}

// isAbout reports whether a record is about a user: by its user, or as that of a finding about the
// user's devices on all hosts, of which only the id is there when it is over.
func isAbout(r *Record, user snapshot.Username) bool {
	return r.User == user || r.User == "" && len(r.IDs) > 0 && !slices.ContainsFunc(r.IDs, func(id string) bool {
		rule, of, _ := strings.Cut(id, "/")
		return !strings.HasSuffix(rule, "-per-user") || of != string(user)
	})
}

// mentions reports whether a line has a word, and not only as a part of another one.
func mentions(line, word []byte) bool {
	for {
		i := bytes.Index(line, word)
		if i < 0 || len(word) == 0 {
			return false
		}
		end := i + len(word)
		if (i == 0 || !inName(line[i-1])) && (end == len(line) || !inName(line[end])) {
			return true
		}
		line = line[end:]
	}
}

func inName(c byte) bool {
	return c == '_' || c == '-' || c == '.' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

// replace replaces a file, and keeps its mode and its time, by which those who follow the log know rotated files.
func replace(name string, old *os.File, content []byte) error {
	info, err := old.Stat()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name+forgetSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(info.Mode().Perm()), os.Chtimes(f.Name(), time.Time{}, info.ModTime()), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(filepath.Dir(name))
}
