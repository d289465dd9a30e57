package nvidiasmi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// maxOutput bounds the output of one call, in bytes: about 100,000 processes.
const maxOutput = 8 << 20

// Exec runs the program at Path (see Find) in its own process group, so that a Ctrl-C at
// the terminal does not reach it, and the end of the context also ends its children.
type Exec struct {
	Path string
	// Env is the environment; nil is that of this process. LC_ALL=C is added for
	// English texts, and GENV_BYPASS=1 so that genv's shim runs the real nvidia-smi.
	Env []string
	// Lock is the path of a lock file in a folder of the caller's own, which is
	// created if necessary; empty for none. All processes with the same lock file run
	// the program one at a time: while it hangs in the kernel, the others get ErrHung.
	// With DetailsArgs it is the file with ".details" after its name.
	Lock string
}

// Run runs the program and waits until it and its output have ended.
func (e Exec) Run(ctx context.Context, args ...string) (RunResult, error) {
	if e.Lock != "" && slices.Equal(args, DetailsArgs()) {
		e.Lock += ".details"
	}
	lock, err := acquire(ctx, e.Lock)
	if err != nil {
		return RunResult{}, err
	}
	cmd, stdout, stderr := e.command(ctx, args)
	err = runLocked(cmd, lock)
	lock.release(ctx.Err() == nil)
	out := RunResult{Stdout: stdout.buffer.Bytes(), Stderr: stderr.buffer.Bytes(), ExitCode: cmd.ProcessState.ExitCode()}
	var exited *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return RunResult{}, context.Cause(ctx)
	case errors.Is(err, os.ErrNotExist):
		return RunResult{}, fmt.Errorf("%w: %w", ErrNotInstalled, err)
	case stdout.full || stderr.full:
		return RunResult{}, fmt.Errorf("%w: it printed more than %d bytes", ErrGarbled, maxOutput)
	case errors.As(err, &exited):
		return out, nil // Failure says what it means
	case err != nil:
		return RunResult{}, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return out, nil
}

// runLocked is cmd.Run with a lock that the program inherits.
func runLocked(cmd *exec.Cmd, lock *lock) error {
	if lock == nil {
		return cmd.Run()
	}
	cmd.ExtraFiles = []*os.File{lock.file}
	if err := cmd.Start(); err != nil {
		return err
	}
	lock.note(cmd.Process.Pid, time.Now().Unix())
	return cmd.Wait()
}

func (e Exec) command(ctx context.Context, args []string) (cmd *exec.Cmd, stdout, stderr *limitedBuffer) {
	stdout, stderr = &limitedBuffer{}, &limitedBuffer{}
	cmd = exec.CommandContext(ctx, e.Path, args...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Env = e.Env
	cmd.Env = append(cmd.Environ(), "LC_ALL=C", "GENV_BYPASS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A child of the program may keep the pipes open.
	cmd.WaitDelay = time.Second
	return cmd, stdout, stderr
}

// limitedBuffer keeps at most maxOutput bytes. Its error makes exec stop reading, which ends
// a program that continues to print (SIGPIPE).
type limitedBuffer struct {
	buffer bytes.Buffer // not embedded: its ReadFrom would ignore the limit
	full   bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.buffer.Len()+len(p) > maxOutput {
		b.full = true
		return 0, io.ErrShortWrite
	}
	return b.buffer.Write(p)
}

// Find searches for the real nvidia-smi in path, a list of folders like PATH. genv's own
// shim has the same name, so it skips a file that is the program self (os.Executable),
// also through links; with an empty self it skips nothing. It ignores relative folders,
// since it may run as root in a folder of another user.
func Find(path, self string) (string, error) {
	own, _ := os.Stat(self) // nil if there is none: then nothing is skipped
	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, "nvidia-smi")
		if !filepath.IsAbs(candidate) {
			continue
		}
		info, err := os.Stat(candidate)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if own == nil || !os.SameFile(own, info) {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%w (PATH is %q)", ErrNotInstalled, path)
}
