package inprocess

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/remote/testfleet"
)

// Exec is a Handler that runs genv on a machine: each command line becomes a
// child process with the machine's environment variables, its own process
// group and the session's streams.
//
// Only `genv …`, `nvidia-smi …` and `sh …` are known, written as plain or quoted words
// (see Words). A leading `sudo` or `sudo -n` is removed: all users are the caller.
// Everything else is "not found", 127.
//
// When the session or the connection ends, the command's stdin ends, as under
// sshd, and Grace later its whole process group is killed.
type Exec struct {
	Genv    string // the path of the program
	Machine *testfleet.Machine
	// Grace is how long a command may run after its client has gone.
	Grace time.Duration
	// Environ is added to the machine's environment variables.
	Environ []string
}

// The statuses of a POSIX shell that has not run anything.
const (
	statusUsage     = 2
	statusNotFound  = 127
	signalledOffset = 128
)

// drainDelay is how long a child's own children may hold its streams open, or
// its client may leave them unread, after it has ended.
const drainDelay = 10 * time.Second

// Handle runs the command.
func (e *Exec) Handle(ctx context.Context, r *Request) int {
	line, underSudo := strings.CutPrefix(r.Line, "sudo ")
	if underSudo {
		line = strings.TrimPrefix(line, "-n ")
	}
	words, err := Words(line)
	if err != nil {
		fmt.Fprintf(r.Stderr, "sh: %v\n", err)
		return statusUsage
	}
	program := e.program(words[0])
	if program == "" {
		fmt.Fprintf(r.Stderr, "sh: 1: %s: not found\n", words[0])
		return statusNotFound
	}
	status, err := e.run(ctx, exec.Command(program, words[1:]...), r)
	if err != nil {
		fmt.Fprintf(r.Stderr, "sh: 1: %s: %v\n", words[0], err)
	}
	return status
}

// program is the path of a program, "" for one that is not found.
func (e *Exec) program(word string) string {
	switch word {
	case "genv", e.Genv:
		return e.Genv
	case "nvidia-smi":
		return e.Machine.NvidiaSMI()
	case "sh": // with which genv looks at hosts without sudo
		return "/bin/sh"
	}
	return ""
}

func (e *Exec) run(ctx context.Context, cmd *exec.Cmd, r *Request) (status int, err error) {
	cmd.Env = append(e.Machine.Environ(), e.Environ...)
	cmd.Dir = e.Machine.Dir
	cmd.Stdout, cmd.Stderr = r.Stdout, r.Stderr
	cmd.WaitDelay = drainDelay
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return statusNotFound, err
	}
	if err := cmd.Start(); err != nil {
		return statusNotFound, err
	}
	go func() { // ends with the session, which may be later than the command
		_, _ = io.Copy(stdin, r.Stdin)
		_ = stdin.Close()
	}()
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { e.endWithClient(ctx, cmd.Process.Pid, stdin, ended) })
	err = cmd.Wait()
	close(ended)
	watch.Wait()
	return exitStatus(cmd.ProcessState, err)
}

// endWithClient ends a command whose client has gone. The process group's
// number is the child's own, for it is signalled before Wait returns.
func (e *Exec) endWithClient(ctx context.Context, group int, stdin io.Closer, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	_ = stdin.Close() // it may be closed already
	select {
	case <-ended:
	case <-time.After(e.Grace):
		_ = syscall.Kill(-group, syscall.SIGKILL) // ESRCH when it was quicker
	}
}

// exitStatus is what a shell would say. A client that did not take all of the
// output does not make the command fail.
func exitStatus(state *os.ProcessState, err error) (int, error) {
	if state == nil {
		return statusNotFound, err
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return signalledOffset + int(status.Signal()), nil
	}
	return state.ExitCode(), nil
}
