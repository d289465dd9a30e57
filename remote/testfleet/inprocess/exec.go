package inprocess

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/remote/testfleet"
)

// Exec is a Handler that runs a host's commands on a machine, as sshd would: by a shell with the
// machine's environment variables, in a process group of its own, with the session's streams.
// sudo does nothing: all users are the caller.
//
// When the session or the connection ends, the whole process group is killed.
type Exec struct {
	Genv    string // the path of the program
	Machine *testfleet.Machine
	// Environ is added to the machine's environment variables.
	Environ []string
}

// prelude defines what the machine's folder of programs doesn't have. The program is $0.
const prelude = `sudo() { [ "$1" != -n ] || shift; "$@"; }
genv() { "$0" "$@"; }
`

// statusFailed is that of a shell that can't be started.
const statusFailed = 127

// drainDelay is how long a child's own children may hold its streams open, or
// its client may leave them unread, after it has ended.
const drainDelay = 10 * time.Second

// Handle runs the command. A client that did not take all of the output does not make it fail.
func (e *Exec) Handle(ctx context.Context, r *Request) int {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", prelude+r.Line, e.Genv)
	cmd.Env = append(e.Machine.Environ(), e.Environ...)
	cmd.Dir = e.Machine.Dir
	cmd.Stdout, cmd.Stderr = r.Stdout, r.Stderr
	cmd.WaitDelay = drainDelay
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(r.Stderr, "sh: %v\n", err)
		return statusFailed
	}
	go func() { // ends with the session, which may be later than the command
		_, _ = io.Copy(stdin, r.Stdin)
		_ = stdin.Close()
	}()
	_ = cmd.Wait() // how it ended is in cmd.ProcessState
	return cmd.ProcessState.ExitCode()
}
