package nvidiasmi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// maxOutput bounds what one call may print: some 100,000 processes.
const maxOutput = 8 << 20

// Exec runs the program at Path (see Find). It runs in a process group of its
// own, so that a Ctrl-C at the terminal leaves it alone and the end of the
// context takes what it started along.
type Exec struct {
	Path string
	// Env is the environment; nil means that of this process. LC_ALL=C and
	// GENV_BYPASS=1 are added: the first keeps the text in English, the second
	// makes a shim of ours step aside.
	Env []string
	// Lock is the path of a lock file, in a folder that is made for the caller
	// alone; empty for none. All processes that use the same file run the program
	// one at a time: while it hangs in the kernel, those that wait get ErrHung.
	Lock string
}

// Run runs the program and waits until it and its output have ended.
func (e Exec) Run(ctx context.Context, args ...string) (Output, error) {
	lock, err := acquire(ctx, e.Lock)
	if err != nil {
		return Output{}, err
	}
	cmd, stdout, stderr := e.command(ctx, args)
	err = runLocked(cmd, lock)
	if ctx.Err() == nil {
		lock.release()
	} else {
		lock.abandon()
	}
	out := Output{Stdout: stdout.buffer.Bytes(), Stderr: stderr.buffer.Bytes(), ExitCode: cmd.ProcessState.ExitCode()}
	var exited *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return Output{}, context.Cause(ctx)
	case errors.Is(err, os.ErrNotExist):
		return Output{}, fmt.Errorf("%w: %w", ErrNotInstalled, err)
	case stdout.full || stderr.full:
		return Output{}, fmt.Errorf("%w: it printed more than %d bytes", ErrGarbled, maxOutput)
	case errors.As(err, &exited):
		return out, nil // Failure says what it means
	case err != nil:
		return Output{}, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return out, nil
}

// runLocked is cmd.Run with a lock for the program to inherit.
func runLocked(cmd *exec.Cmd, lock *lock) error {
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock.file}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lock.begun(cmd.Process.Pid)
	return cmd.Wait()
}

func (e Exec) command(ctx context.Context, args []string) (cmd *exec.Cmd, stdout, stderr *capped) {
	stdout, stderr = &capped{limit: maxOutput}, &capped{limit: maxOutput}
	cmd = exec.CommandContext(ctx, e.Path, args...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Env = e.Env
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env[:len(cmd.Env):len(cmd.Env)], "LC_ALL=C", "GENV_BYPASS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A process that the program started may hold the pipes open after it.
	cmd.WaitDelay = time.Second
	return cmd, stdout, stderr
}

// capped keeps at most limit bytes. Its error makes exec stop reading, which
// ends a program that goes on printing (SIGPIPE).
type capped struct {
	buffer bytes.Buffer // not embedded: its ReadFrom would know no limit
	limit  int
	full   bool
}

var errFull = errors.New("the output is too long")

func (c *capped) Write(p []byte) (int, error) {
	if c.buffer.Len()+len(p) > c.limit {
		c.full = true
		return 0, errFull
	}
	return c.buffer.Write(p)
}
