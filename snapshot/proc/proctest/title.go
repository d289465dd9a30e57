// Package proctest helps tests with real processes. It is for processes that a
// test starts, never for genv itself.
package proctest

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// OverwriteEnviron does to this process what setproctitle does: it writes a
// title over the environment that the process was started with, and NULs to the
// end of it. A title that ends with "…" leaves the rest as it was.
func OverwriteEnviron(title string) error {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	from, err := strconv.ParseInt(fields[50-3], 10, 64)
	if err != nil {
		return err
	}
	to, err := strconv.ParseInt(fields[51-3], 10, 64)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = memory.Close() }()
	data := make([]byte, to-from)
	if title, ok := strings.CutSuffix(title, "…"); ok {
		data = data[:copy(data, title)]
	} else {
		copy(data, title)
	}
	_, err = memory.WriteAt(data, from)
	return err
}
