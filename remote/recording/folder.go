package recording

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// FolderName is the folder in a controller's state folder that has its recordings, Suffix how the
// names of files end, and nameLayout when a file began, in UTC.
const (
	FolderName = "recording"
	Suffix     = ".genvrec"
	nameLayout = "2006-01-02T15-04-05.000Z"
)

// FileName is the name of a file that begins at a moment. Names are in the order of time.
func FileName(begun time.Time) string { return begun.UTC().Format(nameLayout) + Suffix }

// File is a file of a folder.
type File struct {
	Path  string
	Begun time.Time
	Size  int64
}

// Files are the files of a folder, in the order of time. Those with other names are left out.
func Files(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, e := range entries {
		begun, err := time.Parse(nameLayout, strings.TrimSuffix(e.Name(), Suffix))
		if err != nil || !strings.HasSuffix(e.Name(), Suffix) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was too old, and was removed
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			files = append(files, File{filepath.Join(dir, e.Name()), begun, info.Size()})
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// During are those of the files that have something between two moments. Where a file ends is not
// known before it is read: the last one that begins before since is among them.
func During(files []File, since, until time.Time) []File {
	first := 0
	for i := range files {
		if !files[i].Begun.After(since) {
			first = i
		}
	}
	return slices.DeleteFunc(slices.Clone(files[first:]), func(f File) bool { return !f.Begun.Before(until) })
}

// Damage is what could not be read of a file.
type Damage struct {
	Path string
	Err  error // wraps ErrCut, ErrDamaged or ErrInvalid, or says why the file can't be opened
}

// Summary is what there is to say about files that were read.
type Summary struct {
	// Damage is what could not be read. The next file begins with all that is known.
	Damage []Damage
	// Unknown is how many records a later version of genv may have written.
	Unknown int
	// Gaps are the times for which nothing is recorded at the ends of files. Others are in steps.
	Gaps []Gap
}

// Add adds what there is to say about other files.
func (s *Summary) Add(other *Summary) {
	s.Damage, s.Gaps = append(s.Damage, other.Damage...), append(s.Gaps, other.Gaps...)
	s.Unknown += other.Unknown
}

// Read reads files, one after the other, and calls each for every judgement until it returns an
// error, which Read returns. The last file may be one that a controller is writing to: it ends
// where it was written last.
func Read(files []File, each func(*Step) error) (s Summary, err error) {
	for i, f := range files {
		err := s.read(f.Path, each)
		var stop stopped
		if errors.As(err, &stop) {
			return s, stop.error
		}
		if err != nil && !(errors.Is(err, ErrCut) && i == len(files)-1) {
			s.Damage = append(s.Damage, Damage{f.Path, err})
		}
	}
	return s, nil
}

// stopped is an error of each.
type stopped struct{ error }

func (s *Summary) read(path string, each func(*Step) error) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("%s is not a regular file", path))
	}
	r, err := NewReader(f)
	if err != nil {
		return err
	}
	defer r.Close()
	defer func() { s.Unknown, s.Gaps = s.Unknown+r.Unknown, append(s.Gaps, r.Gaps()...) }()
	for {
		step, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := each(step); err != nil {
			return stopped{err}
		}
	}
}
