// Package proctest helps tests with real processes, and says what tests need. It is for processes that a
// test starts, never for genv itself.
package proctest

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Stat returns the numeric fields of /proc/self/stat, with their numbers of proc(5).
func Stat() (field func(n int) uint64, err error) {
	data, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	return func(n int) uint64 {
		value, _ := strconv.ParseUint(fields[n-3], 10, 64) // the kernel writes numbers
		return value
	}, nil
}

// OverwriteEnviron does to this process what setproctitle does: it writes a title over
// the environment with which the process was started, and NULs to the end of it. If the
// title ends with "…", the rest is not changed.
func OverwriteEnviron(title string) error {
	field, err := Stat()
	if err != nil {
		return err
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = memory.Close() }()
	data := make([]byte, field(51)-field(50))
	if title, ok := strings.CutSuffix(title, "…"); ok {
		data = data[:copy(data, title)]
	} else {
		copy(data, title)
	}
	_, err = memory.WriteAt(data, int64(field(50)))
	return err
}
