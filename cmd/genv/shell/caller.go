package shell

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// ErrNotInitialised means that no initialised shell waits for an answer. Its text is
// 1.4.3's, which ends with an empty line when printed.
//
//nolint:revive,staticcheck // its words, as they are
var ErrNotInitialised = errors.New(`Your shell is not properly initialized at the moment.
Run the following command to initialize it.
You should also add it to your ~/.bashrc or any equivalent file.

    eval "$(genv shell --init)"
`)

// Caller is the shell that runs this command through its genv function.
type Caller struct {
	Kind Kind
	// PID is what the shell reports: it must be checked that it is a process of the
	// user before it is written to the state files.
	PID    snapshot.PID
	answer io.Writer
	render func(Change) (string, error)
}

// CallerFrom finds the calling shell by the variables that the genv function
// sets for one call. Programs that this one starts don't inherit its descriptor: the
// shell waits until all processes have closed it.
func CallerFrom(getenv func(string) string) (Caller, error) {
	kind, err := ParseKind(getenv("GENV_SHELL_KIND"))
	fd, fdErr := strconv.ParseUint(getenv("GENV_SHELL_FD"), 10, 16)
	pid, pidErr := strconv.ParseInt(getenv("GENV_SHELL_PID"), 10, 32)
	if err != nil || fdErr != nil || pidErr != nil || fd < 3 || pid < 2 {
		return Caller{}, ErrNotInitialised
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return Caller{}, ErrNotInitialised
	}
	render := Shell143{Environ: getenv}.renderInitialised
	return Caller{Kind: kind, PID: snapshot.PID(pid), answer: os.NewFile(uintptr(fd), "the calling shell"), render: render}, nil
}

// Apply has the shell make the change, once the program ends with status 0. It
// is called once, after everything that can fail.
func (c Caller) Apply(change Change) error {
	code, err := c.render(change)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(c.answer, code); err != nil {
		return fmt.Errorf("answer the shell: %w", err)
	}
	return nil
}
