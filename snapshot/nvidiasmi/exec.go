package nvidiasmi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const maxOutput = 8 << 20 // bytes of one call's output: about 100,000 processes

// Exec runs the program at Path (see Find) in its own process group: Ctrl-C does not reach it, and the context's end
// also kills its children. It sets LC_ALL=C for English texts, and GENV_BYPASS=1, with which genv's shim runs the real
// one.
type Exec struct {
	Path string
	// Lock is a lock file in the caller's own folder, which is created; empty for none. With it, processes run the
	// program one at a time, and get ErrHung while it hangs in the kernel. DetailsArgs have another, plus ".details".
	Lock string
}

// Run runs the program, and waits for it and its output to end.
func (e Exec) Run(ctx context.Context, args ...string) (RunResult, error) {
	if e.Lock != "" && slices.Equal(args, DetailsArgs()) {
		e.Lock += ".details"
	}
	lock, err := acquire(ctx, e.Lock)
	if err != nil {
		return RunResult{}, err
	}
	out, err := e.run(ctx, args, lock)
	release(lock, ctx.Err() == nil)
	switch {
	case ctx.Err() != nil:
		return RunResult{}, context.Cause(ctx)
	case errors.Is(err, os.ErrNotExist):
		return RunResult{}, fmt.Errorf("%w: %w", ErrNotInstalled, err)
	case errors.Is(err, os.ErrPermission):
		return RunResult{}, fmt.Errorf("%w: %w", ErrRefused, err)
	case len(out.Stdout) > maxOutput, len(out.Stderr) > maxOutput:
		return RunResult{}, fmt.Errorf("%w: it printed more than %d bytes", ErrGarbled, maxOutput)
	case err != nil:
		return RunResult{}, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return out, nil
}

// run waits for the program after its output, since waiting takes a thread. Each look runs one, and os/exec would make
// twice as many system calls. The program inherits the lock.
func (e Exec) run(ctx context.Context, args []string, lock *os.File) (out RunResult, err error) {
	stdout, stdoutEnd, noStdout := pipe()
	stderr, stderrEnd, noStderr := pipe()
	pid, err := 0, cmp.Or(noStdout, noStderr, ctx.Err())
	if err == nil {
		pid, err = e.start(args, stdoutEnd, stderrEnd, lock)
	}
	_, _ = unix.Close(stdoutEnd), unix.Close(stderrEnd)
	if err != nil {
		_, _ = stdout.Close(), stderr.Close()
		return out, err
	}
	defer context.AfterFunc(ctx, func() { _ = unix.Kill(-pid, unix.SIGKILL) })()
	defer time.AfterFunc(noteAfter, func() { note(lock, pid, time.Now().Unix()) }).Stop()
	isOver := func() bool { return ctx.Err() != nil || hasExited(pid) }
	read := make(chan []byte, 1)
	go func() { read <- readAll(stderr, isOver) }()
	out.Stdout = readAll(stdout, isOver)
	out.Stderr = <-read
	var status unix.WaitStatus
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		_, err = unix.Wait4(pid, &status, 0, nil)
	}
	out.ExitCode = status.ExitStatus()
	return out, err
}

func (e Exec) start(args []string, stdout, stderr int, lock *os.File) (pid int, err error) {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "LC_ALL=") || strings.HasPrefix(v, "GENV_BYPASS=")
	})
	files := []uintptr{devNull().Fd(), uintptr(stdout), uintptr(stderr)}
	if lock != nil {
		files = append(files, lock.Fd())
	}
	pid, err = syscall.ForkExec(e.Path, append([]string{e.Path}, args...), &syscall.ProcAttr{
		Env: append(env, "LC_ALL=C", "GENV_BYPASS=1"), Files: files, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		err = &os.PathError{Op: "fork/exec", Path: e.Path, Err: err}
	}
	return pid, err
}

// pipe returns an end in Go's poller, and one for a program; nil and -1 after an error.
func pipe() (_ *os.File, end int, err error) {
	fds := []int{-1, -1}
	if err = unix.Pipe2(fds, unix.O_CLOEXEC); err != nil {
		return nil, -1, os.NewSyscallError("pipe2", err)
	}
	_, err = unix.FcntlInt(uintptr(fds[0]), unix.F_SETFL, unix.O_NONBLOCK)
	file := os.NewFile(uintptr(fds[0]), "pipe")
	return file, fds[1], cmp.Or(err, file.SetReadDeadline(time.Now().Add(childTime))) // fails outside the poller
}

// devNull is /dev/null, opened once; nil if it can't be opened.
var devNull = sync.OnceValue(func() *os.File {
	file, _ := os.Open(os.DevNull) // without it, the program has no stdin
	return file
})

// childTime is how often readAll checks whether the program has ended: a child may keep its output open.
const childTime = time.Second

// readAll reads until the pipe or the program ends, or the output exceeds maxOutput. The closed pipe ends a program
// that continues to print (SIGPIPE).
func readAll(pipe *os.File, isOver func() bool) []byte {
	defer pipe.Close()
	output := make([]byte, 0, 512)
	for len(output) <= maxOutput {
		n, err := pipe.Read(output[len(output):cap(output)])
		switch {
		case err == nil:
			output = slices.Grow(output[:len(output)+n], 1)
		case !errors.Is(err, os.ErrDeadlineExceeded) || isOver():
			return output
		default:
			_ = pipe.SetReadDeadline(time.Now().Add(childTime))
		}
	}
	return output
}

// hasExited says whether a child has ended, without reaping it.
func hasExited(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// Find searches for the real nvidia-smi in path, a list like PATH. It skips self, which genv's shim is, and relative
// folders, since it may run as root.
func Find(path, self string) (string, error) {
	own, _ := os.Stat(self) // nil skips nothing
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

// acquire waits for the lock until shortly before ctx ends. The error is ErrHung, or the cause of ctx. Without a safe
// lock file, the lock is nil and the program runs without it. The program inherits the file (flock(2)): while it hangs
// in the kernel it keeps the lock, even if its genv was killed.
func acquire(ctx context.Context, path string) (*os.File, error) {
	if path == "" || !ownFolder(filepath.Dir(path)) {
		return nil, nil
	}
	const shortest, longest = time.Millisecond, 50 * time.Millisecond
	began, limit := time.Now(), lockTimeout(ctx)
	for pause := shortest; ; pause = min(2*pause, longest) {
		l, holder, err := tryLock(path)
		if l != nil || err != nil {
			return l, nil // after an error without a lock
		}
		waited := time.Since(began)
		if waited >= limit || holder.isHung() && waited >= killTime {
			return nil, holder.hungError()
		}
		select {
		case <-time.After(min(pause, limit-waited)):
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, holder.hungError()
			}
			return nil, context.Cause(ctx)
		}
	}
}

// lockTimeout is nine tenths of the time left, so that the caller gets ErrHung and not just a timeout.
func lockTimeout(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return DefaultTimeout
	}
	return time.Until(deadline) / 10 * 9
}

// ownFolder creates a folder that only we can write, and checks it. Others may read root's.
func ownFolder(dir string) bool {
	var st unix.Stat_t
	err := unix.Lstat(dir, &st)
	if errors.Is(err, unix.ENOENT) && os.MkdirAll(filepath.Dir(dir), 0o755) == nil {
		_ = os.Mkdir(dir, 0o755) // the result is checked below
		err = unix.Lstat(dir, &st)
	}
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
}

// tryLock takes the lock, or returns its holder. Removing the file from a disk would take as long as running a program.
func tryLock(path string) (*os.File, lockHolder, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, lockHolder{}, err
	}
	file := os.NewFile(uintptr(fd), path) // outside the poller, unlike os.OpenFile's
	if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		if readLockHolder(file).pid != 0 {
			note(file, 0, 0)
		}
		return file, lockHolder{}, nil
	}
	h := readLockHolder(file)
	_ = file.Close() // it was only read
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	}
	return nil, h, err
}

const noteAfter = 100 * time.Millisecond // most calls have ended by then, and no one has waited long

// note tells those who wait which process runs, and since when (Unix time). All notes have the same length.
func note(lock *os.File, pid int, since int64) {
	_, _ = lock.WriteAt(fmt.Appendf(nil, "%10d %20d\n", pid, since), 0) // it only adds to ErrHung
}

// release unlocks the file of an ended program, even if a child has it; else program and children keep it locked.
func release(lock *os.File, ended bool) {
	if lock != nil && ended {
		_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
	}
	_ = lock.Close() // nil is no lock
}

type lockHolder struct {
	pid   int
	since time.Time
}

func readLockHolder(file *os.File) (h lockHolder) {
	text := make([]byte, 64)
	n, _ := file.ReadAt(text, 0) // an error leaves nothing to parse
	if strings.Trim(string(text[:n]), " 0\n") == "" {
		return lockHolder{} // the usual case, in which parsing would only cost time
	}
	var since int64
	if _, err := fmt.Sscan(string(text[:n]), &h.pid, &since); err != nil || h.pid <= 0 {
		return lockHolder{}
	}
	h.since = time.Unix(since, 0)
	return h
}

func (h lockHolder) isHung() bool { return h.pid != 0 && time.Since(h.since) > DefaultTimeout }

func (h lockHolder) hungError() error {
	if h.pid == 0 {
		return fmt.Errorf("nvidia-smi is already running and does not return: %w", ErrHung)
	}
	return fmt.Errorf("nvidia-smi has been running since %s as process %d and does not return: %w",
		h.since.Format(time.RFC3339), h.pid, ErrHung)
}
