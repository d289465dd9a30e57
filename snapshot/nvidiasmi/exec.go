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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const maxOutput = 8 << 20 // bounds the output of one call, in bytes: about 100,000 processes

// Exec runs the program at Path (see Find) in its own process group: a Ctrl-C at the terminal does not reach it, and
// the end of the context also ends its children.
type Exec struct {
	Path string
	// Env is the environment; nil is that of this process. LC_ALL=C is added for English texts, and GENV_BYPASS=1 for
	// genv's shim to run the real nvidia-smi.
	Env []string
	// Lock is the path of a lock file, in a folder of the caller's own that is made if necessary; empty for none. With
	// it, processes run the program one at a time, and get ErrHung while it hangs in the kernel. DetailsArgs have their
	// own, with ".details" at the end.
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
	release(lock, ctx.Err() == nil)
	var exited *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return RunResult{}, context.Cause(ctx)
	case errors.Is(err, os.ErrNotExist):
		return RunResult{}, fmt.Errorf("%w: %w", ErrNotInstalled, err)
	case errors.Is(err, os.ErrPermission):
		return RunResult{}, fmt.Errorf("%w: %w", ErrRefused, err)
	case len(out.Stdout) > maxOutput, len(out.Stderr) > maxOutput:
		return RunResult{}, fmt.Errorf("%w: it printed more than %d bytes", ErrGarbled, maxOutput)
	case err != nil && !errors.As(err, &exited): // Failure says what an exit code means
		return RunResult{}, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return out, nil
}

func (e Exec) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, e.Path, args...)
	if e.Env == nil {
		e.Env = os.Environ()
	}
	cmd.Env = append(slices.Clip(e.Env), "LC_ALL=C", "GENV_BYPASS=1")
	if null := nothing(); null != nil {
		cmd.Stdin = null
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// run runs a program, which inherits the lock. It waits for the program after its output, as waiting takes a thread.
func run(ctx context.Context, cmd *exec.Cmd, lock *os.File) (out RunResult, err error) {
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock}
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
	note(lock, cmd.Process.Pid, time.Now().Unix())
	isOver := func() bool { return ctx.Err() != nil || hasExited(cmd.Process.Pid) }
	read := make(chan []byte, 1)
	go func() { read <- readAll(stderr, isOver) }()
	out.Stdout = readAll(stdout, isOver)
	out.Stderr = <-read
	err = cmd.Wait()
	out.ExitCode = cmd.ProcessState.ExitCode()
	return out, err
}

// nothing is /dev/null, which each call would open otherwise; nil if it can't be opened.
var nothing = sync.OnceValue(func() *os.File {
	file, _ := os.Open(os.DevNull) // the call that opens it itself says why
	return file
})

// childTime is how often readAll asks whether the program is over, of which a child may keep the output open.
const childTime = time.Second

// readAll reads until the pipe ends, the program is over, or there are more than maxOutput bytes. The closed pipe ends
// a program that continues to print (SIGPIPE).
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

// hasExited says whether a child has ended, which may be waited for later.
func hasExited(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// Find searches for the real nvidia-smi in path, a list of folders like PATH. It skips genv's own shim, a file that is
// the program self, and relative folders, since it may run as root.
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

// acquire takes the lock, and waits for it until shortly before ctx ends. The error is ErrHung, or the cause of ctx. If
// a lock file can't be created safely, the lock is nil and the program runs without it. The program inherits the file
// (flock(2)): while it hangs in the kernel it keeps the lock, also after its genv was killed.
func acquire(ctx context.Context, path string) (*os.File, error) {
	if path == "" || !ownFolder(filepath.Dir(path)) {
		return nil, nil
	}
	const shortest, longest = time.Millisecond, 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, lockTimeout(ctx))
	defer cancel()
	began := time.Now()
	for pause := shortest; ; pause = min(2*pause, longest) {
		l, holder, err := tryLock(path)
		if l != nil || err != nil {
			return l, nil // after an error without a lock
		}
		if holder.isHung() && time.Since(began) >= killTime {
			return nil, holder.hungError()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, holder.hungError()
			}
			return nil, context.Cause(ctx)
		}
	}
}

// lockTimeout is nine tenths of the time until the deadline, so that the caller gets ErrHung and not just a timeout.
func lockTimeout(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return DefaultTimeout
	}
	return time.Until(deadline) / 10 * 9
}

// ownFolder creates a folder that only we can write, and says whether it is one. Others may read what root has there.
func ownFolder(dir string) bool {
	var st unix.Stat_t
	err := unix.Lstat(dir, &st)
	if errors.Is(err, unix.ENOENT) && os.MkdirAll(filepath.Dir(dir), 0o755) == nil {
		_ = os.Mkdir(dir, 0o755) // the result is checked below
		err = unix.Lstat(dir, &st)
	}
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
}

// tryLock takes the lock, or returns what is known about its holder. It leaves the file: removing it from a disk takes
// as long as running a program.
func tryLock(path string) (*os.File, lockHolder, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, lockHolder{}, err
	}
	file := os.NewFile(uintptr(fd), path) // which isn't polled, unlike os.OpenFile's
	if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		note(file, 0, 0)
		return file, lockHolder{}, nil
	}
	h := readLockHolder(file)
	_ = file.Close() // it was only read
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	}
	return nil, h, err
}

// note writes which process runs and since when (Unix time), for those who wait. All notes have the same length.
func note(lock *os.File, pid int, since int64) {
	_, _ = lock.WriteAt(fmt.Appendf(nil, "%10d %20d\n", pid, since), 0) // it only makes ErrHung say more
}

// release unlocks the file if the program has ended, even if a child still has it. Otherwise it stays locked as long as
// the program or a child has it.
func release(lock *os.File, ended bool) {
	if lock != nil && ended {
		_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
	}
	_ = lock.Close() // nil is no lock
}

// lockHolder is the content of a lock file: the program that runs.
type lockHolder struct {
	pid   int
	since time.Time
}

func readLockHolder(file *os.File) (h lockHolder) {
	text := make([]byte, 64)
	n, _ := file.ReadAt(text, 0) // after an error there is nothing to parse
	var since int64
	if _, err := fmt.Sscan(string(text[:n]), &h.pid, &since); err != nil || h.pid <= 0 {
		return lockHolder{}
	}
	h.since = time.Unix(since, 0)
	return h
}

// isHung says that the program has run for longer than any caller waits for it.
func (h lockHolder) isHung() bool { return h.pid != 0 && time.Since(h.since) > DefaultTimeout }

func (h lockHolder) hungError() error {
	if h.pid == 0 {
		return fmt.Errorf("nvidia-smi is already running and does not return: %w", ErrHung)
	}
	return fmt.Errorf("nvidia-smi has been running since %s as process %d and does not return: %w",
		h.since.Format(time.RFC3339), h.pid, ErrHung)
}
