package command

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A program that root starts as another account has its own terminal, as with sudo's use_pty. On root's terminal it
// could inject input (TIOCSTI), and a process that it leaves behind could read what root types next. Root's process
// relays input and output. A monitor leads the session of the new terminal, with the program in another process group:
// otherwise the kernel doesn't let Ctrl-Z stop it.

// MonitorName is argv[0] of the monitor, which calls only AsAccountBeside.
const MonitorName = "genv: monitor"

type terminal struct {
	tty          *os.File
	fd           int // of tty
	master       *os.File
	cookedOutput bool        // another program also writes to it, as in `genv remote gpus | less`
	granted      bool        // the program asked for it, and gets the input
	former       *term.State // the saved state; nil while the terminal is unchanged
}

func relay(args []string) (int, error) {
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr} //nolint:forbidigo // for the program
	asks, tells, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer func() { _ = asks.Close() }()
	attr := os.ProcAttr{Env: os.Environ(), Files: append(files, nil, tells), Sys: &syscall.SysProcAttr{Setsid: true}}
	var t *terminal
	if tty := terminalOf(files); tty != nil {
		master, slave, err := pty.Open()
		if err != nil {
			return 0, fmt.Errorf("a terminal for the controller's account: %w", err)
		}
		defer func() { _ = master.Close() }()
		t = &terminal{tty: tty, fd: int(tty.Fd()), master: master, cookedOutput: !term.IsTerminal(1)}
		t.resize()
		for i := range files {
			if term.IsTerminal(i) {
				attr.Files[i] = slave
			}
		}
		attr.Files[3], attr.Sys.Setctty, attr.Sys.Ctty = slave, true, 3
		defer t.show()()
	}
	signals := PassedOn(unix.SIGCONT, unix.SIGWINCH) // before the program starts
	defer signal.Stop(signals)
	monitor, err := os.StartProcess("/proc/self/exe", append([]string{MonitorName}, args...), &attr)
	_ = tells.Close()
	if t != nil {
		_ = attr.Files[3].Close() // the master ends with the last open slave
	}
	if err != nil {
		return 0, err
	}
	return t.attend(monitor, asks, signals), nil
}

func terminalOf(files []*os.File) *os.File {
	if fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0); err == nil {
		return os.NewFile(uintptr(fd), "/dev/tty")
	}
	if i := slices.IndexFunc(files, func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }); i >= 0 {
		return files[i]
	}
	return nil
}

// attend returns the program's exit code.
func (t *terminal) attend(monitor *os.Process, asks *os.File, signals <-chan os.Signal) int {
	changes, asked, over := waitFor(monitor.Pid), make(chan struct{}), make(chan struct{})
	defer close(over)
	go func() {
		if n, _ := asks.Read(make([]byte, 1)); n > 0 {
			close(asked)
		}
	}()
	for {
		select {
		case <-asked:
			asked = nil
			if t != nil {
				t.granted = true
				t.take()
				go t.read(over)
			}
		case s := <-signals:
			switch {
			case t != nil && s == unix.SIGWINCH:
				t.resize()
			case s == unix.SIGCONT:
				t.take()
			case s != unix.SIGWINCH:
				_ = monitor.Signal(s) // an error means that it has ended
			}
		case status := <-changes:
			t.giveBack()
			if !status.Stopped() {
				return exitCode(status)
			}
			_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
			t.take()
			_ = monitor.Signal(unix.SIGCONT)
		}
	}
}

// PassedOn returns a channel of the signals to relay to a program that this process runs, and others. Signals that were
// ignored when this process started, as with nohup(1), stay ignored for the program as well.
func PassedOn(others ...os.Signal) chan os.Signal {
	signals := make(chan os.Signal, 16)
	all := append(slices.Clip(others), unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1,
		unix.SIGUSR2, unix.SIGTSTP)
	if all = slices.DeleteFunc(all, signal.Ignored); len(all) > 0 { // no argument would mean all signals
		signal.Notify(signals, all...)
	}
	return signals
}

// waitFor sends each change of a process, its end last.
func waitFor(pid int) <-chan unix.WaitStatus {
	changes := make(chan unix.WaitStatus)
	go func() {
		for {
			var status unix.WaitStatus
			_, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			changes <- status
			if err != nil || !status.Stopped() {
				return
			}
		}
	}()
	return changes
}

func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func (t *terminal) resize() { _ = pty.InheritSize(t.tty, t.master) } // an error leaves the size

// take gives the program all keys, Ctrl-C included, once it has asked for the terminal and while root's process is in
// the foreground.
func (t *terminal) take() {
	if t == nil || !t.granted || t.former != nil || !t.isForeground() {
		return
	}
	t.resize()
	former, err := term.MakeRaw(t.fd)
	if err != nil {
		return
	}
	t.former = former
	if !t.cookedOutput {
		return
	}
	if raw, err := unix.IoctlGetTermios(t.fd, unix.TCGETS); err == nil {
		raw.Oflag |= unix.OPOST
		_ = unix.IoctlSetTermios(t.fd, unix.TCSETS, raw) // a newline returns to the first column
	}
}

func (t *terminal) giveBack() {
	if t != nil && t.former != nil {
		_ = term.Restore(t.fd, t.former) // an error means that the terminal is gone
		t.former = nil
	}
}

func (t *terminal) isForeground() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

func (t *terminal) read(over <-chan struct{}) {
	const pause = 100 * time.Millisecond
	typed := make([]byte, 4<<10)
	for {
		ready, _ := unix.Poll([]unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN}}, int(pause.Milliseconds()))
		select {
		case <-over:
			return
		default:
		}
		if ready <= 0 {
			continue
		}
		if !t.isForeground() {
			time.Sleep(pause)
			continue
		}
		n, err := unix.Read(t.fd, typed)
		if n <= 0 && !errors.Is(err, unix.EINTR) {
			return // the terminal is gone
		}
		if _, err := t.master.Write(typed[:max(n, 0)]); err != nil {
			return
		}
	}
}

// show copies the program's output. wait returns when all is written.
func (t *terminal) show() (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(t.tty, t.master) // until no process has the terminal, or root's is gone
		_ = t.master.Close()
	}()
	return func() {
		select {
		case <-done:
		case <-time.After(100 * time.Millisecond): // a process that the program left has it
		}
	}
}

func monitor(program *exec.Cmd) int {
	tells := os.NewFile(4, "tells")
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // before Linux 5.11 they stay open
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	signals := PassedOn(unix.SIGWINCH)                                             // for the foreground only
	program.Stdin, program.Stdout, program.Stderr = os.Stdin, os.Stdout, os.Stderr //nolint:forbidigo // as in relay
	if program.SysProcAttr == nil {
		program.SysProcAttr = &syscall.SysProcAttr{}
	}
	program.SysProcAttr.Setpgid = true
	if err := program.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "genv:", err) //nolint:forbidigo // the monitor is a program of its own
		return ExitFailed
	}
	group := -program.Process.Pid
	go func() {
		for err := error(unix.EINTR); errors.Is(err, unix.EINTR); { // Go's own signals interrupt it
			_, err = unix.Poll([]unix.PollFd{{Fd: 4}}, -1)
		}
		_ = unix.Kill(group, unix.SIGTERM) // root's process was killed
	}()
	for changes, notified := waitFor(program.Process.Pid), false; ; {
		select {
		case s := <-signals:
			_ = unix.Kill(group, s.(syscall.Signal)) // an error means that it has ended
		case status := <-changes:
			switch {
			case !status.Stopped():
				return exitCode(status)
			case status.StopSignal() == unix.SIGTTIN || status.StopSignal() == unix.SIGTTOU: // it asks for the terminal
				if unix.IoctlSetPointerInt(3, unix.TIOCSPGRP, -group) != nil {
					continue // no terminal to give: it stays stopped
				}
				if !notified {
					_, _ = tells.Write([]byte{1}) // fails only while root's process ends
				}
				notified = true
			default:
				_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
			}
			_ = unix.Kill(group, unix.SIGCONT)
		}
	}
}
