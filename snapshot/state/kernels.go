package state

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Kernels finds Jupyter kernels by the command lines of processes, which name
// the kernel's connection file (kernel-ID.json). Unlike the files in the
// owner's home folder, every user may read these; where /proc hides them, a
// kernel that is not seen is Unknown.
func (p procfs) Kernels(ids []string) map[string]Liveness {
	lives := make(map[string]Liveness, len(ids))
	absent := Unknown
	if p.showsAll() {
		absent = Gone
	}
	for _, id := range ids {
		lives[id] = absent
	}
	entries, err := os.ReadDir(p.root)
	if err != nil || len(ids) == 0 {
		return map[string]Liveness{}
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		markKernels(lives, commandLine(filepath.Join(p.root, e.Name(), "cmdline")))
	}
	return lives
}

// maxCommandLine is how much of a command line is read, in bytes. A kernel's
// file is among the first arguments, and any user can start processes with
// megabytes of others, while everybody waits for the lock.
const maxCommandLine = 64 << 10

// commandLine is the beginning of a command line. A process that ends meanwhile
// has none, and is no kernel.
func commandLine(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	text, _ := io.ReadAll(io.LimitReader(file, maxCommandLine))
	return string(text)
}

// markKernels marks the kernels whose connection file a command line names.
func markKernels(lives map[string]Liveness, cmdline string) {
	for arg := range strings.SplitSeq(cmdline, "\x00") {
		id, isFile := strings.CutSuffix(filepath.Base(arg), ".json")
		id, isKernel := strings.CutPrefix(id, "kernel-")
		if _, asked := lives[id]; isFile && isKernel && asked {
			lives[id] = Alive
		}
	}
}
