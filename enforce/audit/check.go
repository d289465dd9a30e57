package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrNotALog is wrapped when a file holds something other than records.
var ErrNotALog = errors.New("the file exists and is not an audit log of genv")

// How much of a file Check reads to find a record: damaged lines may come first.
const (
	maxBytes = 4 << 20 // bytes
	maxLines = 100
)

// Check returns nil if a file can be used as a log: it does not exist, is empty,
// or holds records. The error wraps ErrNotALog if it holds something else. Check
// creates no file and follows no link.
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
	found, err := holdsRecords(io.LimitReader(f, maxBytes))
	if err == nil && !found {
		err = fmt.Errorf("%s: %w", path, ErrNotALog)
	}
	return err
}

// holdsRecords says whether one of the first lines is a record, or the file is
// empty.
func holdsRecords(r io.Reader) (bool, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxBytes+1)
	n := 0
	for ; n < maxLines && lines.Scan(); n++ {
		var record Record
		if json.Unmarshal(lines.Bytes(), &record) == nil && slices.Contains(kinds, record.Kind) && !record.Time.IsZero() {
			return true, nil
		}
	}
	return n == 0, lines.Err()
}
