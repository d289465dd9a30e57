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

	"golang.org/x/sys/unix"
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
	// Lock is the path of a lock file in a folder of the caller's own, which is created if necessary; empty for none.
	// All processes with the same lock file run the program one at a time: while it hangs in the kernel, the others get
	// ErrHung. With DetailsArgs it is the file with ".details" after its name.
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
	cmd := e.command(ctx, args)
	out, err := run(ctx, cmd, lock)
	lock.release(ctx.Err() == nil)
	var exited *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return RunResult{}, context.Cause(ctx)
	case errors.Is(err, os.ErrNotExist):
		return RunResult{}, fmt.Errorf("%w: %w", ErrNotInstalled, err)
	case len(out.Stdout) > maxOutput, len(out.Stderr) > maxOutput:
		return RunResult{}, fmt.Errorf("%w: it printed more than %d bytes", ErrGarbled, maxOutput)
	case err != nil && !errors.As(err, &exited): // Failure says what an exit code means
		return RunResult{}, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return out, nil
}

func (e Exec) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, e.Path, args...)
	cmd.Env = e.Env
	cmd.Env = append(cmd.Environ(), "LC_ALL=C", "GENV_BYPASS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// run runs a program, which inherits the lock. It is waited for after its output, so that no thread waits meanwhile.
func run(ctx context.Context, cmd *exec.Cmd, lock *lock) (out RunResult, err error) {
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock.file}
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return out, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return out, err
	}
	if err := cmd.Start(); err != nil {
		return out, err
	}
	lock.note(cmd.Process.Pid, time.Now().Unix())
	isOver := func() bool { return ctx.Err() != nil || hasExited(cmd.Process.Pid) }
	read := make(chan []byte, 1)
	go func() { read <- readAll(stderr, isOver) }()
	out.Stdout = readAll(stdout, isOver)
	out.Stderr = <-read
	err = cmd.Wait()
	out.ExitCode = cmd.ProcessState.ExitCode()
	return out, err
}

// childTime is how often it is looked whether a program is over that a child of it keeps the output of.
const childTime = time.Second

// readAll reads until a pipe ends or the program is over, or more than maxOutput bytes: then the pipe is closed, which
// ends a program that continues to print (SIGPIPE).
func readAll(pipe io.ReadCloser, isOver func() bool) []byte {
	defer pipe.Close()
	var output bytes.Buffer
	for {
		if file, ok := pipe.(*os.File); ok {
			_ = file.SetReadDeadline(time.Now().Add(childTime)) // pipes have deadlines
		}
		_, err := output.ReadFrom(io.LimitReader(pipe, int64(maxOutput+1-output.Len())))
		if !errors.Is(err, os.ErrDeadlineExceeded) || isOver() {
			return output.Bytes()
		}
	}
}

// hasExited says whether a child has ended, before it is waited for.
func hasExited(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// Find searches for the real nvidia-smi in path, a list of folders like PATH, and skips genv's own shim: files that
// are the program self (os.Executable), unless that is empty. It ignores relative folders, since it may run as root.
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
