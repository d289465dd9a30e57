package testfleet

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const module = "github.com/seed-3119e985/genv/"

// folder is bin/test of the source tree, as an absolute path.
var folder = sync.OnceValues(func() (string, error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the source tree: %w", err)
	}
	dir := filepath.Join(filepath.Dir(strings.TrimSpace(string(mod))), "bin", "test")
	return dir, os.MkdirAll(dir, 0o755)
})

var upToDate sync.Map // the commands that this process has built

// programsVariable names a folder with programs that make test has built: then not each test binary
// has go find out that they are up to date.
const programsVariable = "TESTFLEET_PROGRAMS"

// InstallProgram puts the program of a command, such as "cmd/genv", at path, where every user can
// run it. It needs Go and the source tree.
func InstallProgram(command, path string) error {
	if dir := os.Getenv(programsVariable); dir != "" {
		program := filepath.Join(dir, filepath.Base(command))
		if _, err := os.Stat(program); err == nil {
			return CopyProgram(program, path)
		}
	}
	shared, err := lock(command)
	if err != nil {
		return build(command, path) // the source tree is another user's
	}
	defer shared.Close() // which unlocks it
	program := strings.TrimSuffix(shared.Name(), ".lock")
	if _, ok := upToDate.Load(command); !ok {
		if err := build(command, program); err != nil {
			return err
		}
		upToDate.Store(command, true)
	}
	return CopyProgram(program, path)
}

// lock waits for other processes that build the same program.
func lock(command string) (*os.File, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, filepath.Base(command)+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		_ = file.Close() // the lock's error counts
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return file, nil
}

// build has the tags of the Makefile. go build leaves a program that is up to date.
func build(command, program string) error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-tags", "urfave_cli_no_docs,nethttpomithttp2", "-ldflags", "-s -w", "-o", program, module+command)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", command, err, out)
	}
	return os.Chmod(program, 0o755)
}

// CopyProgram copies a program for all users. Another process writes the copy: a program can't be started while a
// process has it open for writing, as a child that this one starts meanwhile in another goroutine would for a moment.
func CopyProgram(program, path string) error {
	if out, err := exec.Command("cp", "--", program, path).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", program, err, out)
	}
	return os.Chmod(path, 0o755)
}

// ProgramOutput is what a program has printed so far: it may be read while the program writes. The
// zero ProgramOutput is empty.
type ProgramOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer. It has no error.
func (o *ProgramOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String is all that was written so far.
func (o *ProgramOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
