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

	"golang.org/x/sys/unix"
)

// ErrNotALog is wrapped when a file holds something other than records.
var ErrNotALog = errors.New("the file exists and is not an audit log of genv")

// How much of a file Check reads to find a record, since damaged lines may come
// first.
const (
	maxChecked     = 4 << 20 // bytes
	maxLineChecked = 100
)

// Check says whether a file can be a log: it doesn't exist, it is empty, or it
// holds records. It creates no file and follows no link. The error wraps ErrNotALog
// if the file holds something else.
func Check(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
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
	found, err := holdsRecords(io.LimitReader(f, maxChecked))
	if err == nil && !found {
		err = fmt.Errorf("%s: %w", path, ErrNotALog)
	}
	return err
}

// holdsRecords says whether one of the first lines is a record, or the file is
// empty.
func holdsRecords(r io.Reader) (bool, error) {
	lines := bufio.NewReader(r)
	for n := range maxLineChecked {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if n == 0 && len(line) == 0 || isRecord(line) {
			return true, nil
		}
		if err != nil {
			break
		}
	}
	return false, nil
}

func isRecord(line []byte) bool {
	var r Record
	return json.Unmarshal(line, &r) == nil && slices.Contains(kinds, r.Kind) && !r.Time.IsZero()
}
