package local_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// login is a real terminal of a user's.
type login struct{ screen, tty *os.File }

func logIn(t *testing.T, uid snapshot.UID, mode os.FileMode) *login {
	proctest.NeedRoot(t)
	screen, tty, err := pty.Open()
	require.NoError(t, err)
	t.Cleanup(func() { _ = screen.Close(); _ = tty.Close() })
	require.NoError(t, os.Chown(tty.Name(), int(uid), 5)) // 5 is the group tty
	require.NoError(t, os.Chmod(tty.Name(), mode))
	return &login{screen, tty}
}

// shows is the message that has appeared on the screen, which may come in parts; it waits for the next one.
func (l *login) shows(t *testing.T, patience time.Duration) (text string) {
	part := make([]byte, 8192)
	for strings.Count(text, "\n") < 3 || !strings.HasSuffix(text, "\n") { // a blank line, a heading and what is said
		if !proctest.Readable(t, l.screen, patience) {
			break
		}
		n := proctest.Try(l.screen.Read(part)).OK(t)
		text += string(part[:n])
	}
	return text
}

const (
	takesMessages = 0o620 // mesg y
	takesNone     = 0o600 // mesg n
)

// Users that no machine has, so that no real user gets a message.
const (
	oneUser     = snapshot.UID(60771)
	anotherUser = snapshot.UID(60772)
)

func TestOnlyTheUserIsNotified(t *testing.T) {
	hers, herOther, his := logIn(t, oneUser, takesMessages), logIn(t, oneUser, takesMessages), logIn(t, anotherUser, takesMessages)
	shown := local.Terminals{Host: "gpu-01", Now: func() time.Time { return time.Date(2026, 11, 20, 22, 5, 0, 0, time.UTC) }}.Notify(oneUser, "Process 5 is not running in a GPU environment.\nStart it in one.")
	require.Len(t, shown.Terminals, 2)
	want := "\r\r\n\aMessage from genv on gpu-01 at 22:05:\r\r\n  Process 5 is not running in a GPU environment.\r\r\n  Start it in one.\r\r\n"
	require.Equal(t, want, hers.shows(t, time.Minute), "the terminal adds a return to each line")
	require.Equal(t, want, herOther.shows(t, time.Minute))
	require.Empty(t, his.shows(t, 50*time.Millisecond))
}

// typed is when something was typed on a terminal last.
func (l *login) typed(t *testing.T, at time.Time) {
	require.NoError(t, os.Chtimes(l.tty.Name(), at, time.Now()))
}

// A terminal on which nothing was typed lately shows the text as well, but may have no reader.
func TestTerminalsInUse(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		typed []time.Duration // before the text, on each terminal that takes messages
		quiet bool            // there is another one, just used, that takes none
		want  int
		inUse bool
	}{
		"typed just now":                  {typed: []time.Duration{0}, want: 1, inUse: true},
		"typed lately":                    {typed: []time.Duration{9 * time.Minute}, want: 1, inUse: true},
		"typed long ago":                  {typed: []time.Duration{11 * time.Minute}, want: 1},
		"one of two":                      {typed: []time.Duration{24 * time.Hour, time.Minute}, want: 2, inUse: true},
		"none of two":                     {typed: []time.Duration{24 * time.Hour, time.Hour}, want: 2},
		"only on one without messages":    {typed: []time.Duration{time.Hour}, quiet: true, want: 1},
		"the clock has been set back":     {typed: []time.Duration{-24 * time.Hour}, want: 1},
		"no terminal":                     {},
		"no terminal that takes messages": {quiet: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, before := range tt.typed {
				logIn(t, oneUser, takesMessages).typed(t, now.Add(-before))
			}
			if tt.quiet {
				logIn(t, oneUser, takesNone).typed(t, now)
			}
			shown := local.Terminals{Now: func() time.Time { return now }}.Notify(oneUser, "x")
			require.Len(t, shown.Terminals, tt.want)
			require.Equal(t, tt.inUse, shown.InUse)
		})
	}
}

func TestTerminalWithoutMessagesIsSkipped(t *testing.T) {
	quiet := logIn(t, oneUser, takesNone)
	require.Zero(t, local.Terminals{}.Notify(oneUser, "x"))
	require.Empty(t, quiet.shows(t, 50*time.Millisecond))
}

func TestUserWithoutTerminal(t *testing.T) {
	require.Zero(t, local.Terminals{}.Notify(60773, "x"))
}

// Any user can choose a name in a finding, so it must not affect a terminal.
func TestControlCharactersAreEscaped(t *testing.T) {
	hers := logIn(t, oneUser, takesMessages)
	local.Terminals{}.Notify(oneUser, "a\x1b[2J\x07\rb\u202ec\x9b1md\xff"+strings.Repeat("x", 10_000))
	text := hers.shows(t, time.Minute)
	require.Contains(t, text, `a\x1b[2J\a\rb\u202ec`)
	require.NotContains(t, text, "\x1b")
	require.Less(t, len(text), 3000)
}

// A terminal that accepts no output (Ctrl-S) delays nothing.
func TestStoppedTerminalIsSkipped(t *testing.T) {
	stopped, other := logIn(t, oneUser, takesMessages), logIn(t, oneUser, takesMessages)
	require.NoError(t, unix.IoctlSetInt(int(stopped.tty.Fd()), unix.TCXONC, unix.TCOOFF))
	require.Len(t, local.Terminals{}.Notify(oneUser, "x").Terminals, 1)
	require.NotEmpty(t, other.shows(t, time.Minute))
	require.NoError(t, unix.IoctlSetInt(int(stopped.tty.Fd()), unix.TCXONC, unix.TCOON))
}

// holdTerminal keeps anyone who opens a terminal of oneUser waiting in the kernel: one thread reads a line from it into
// memory that is never there, and others want to change its line discipline meanwhile. The test itself must not have
// it open: Go's poller would wait, too.
func holdTerminal() {
	screen, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	number, numberErr := unix.IoctlGetInt(screen, unix.TIOCGPTN)
	name := fmt.Sprint("/dev/pts/", number)
	err = errors.Join(err, numberErr, unix.IoctlSetPointerInt(screen, unix.TIOCSPTLCK, 0), os.Chown(name, int(oneUser), 5), os.Chmod(name, takesMessages))
	tty, openErr := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY, 0)
	_, writeErr := unix.Write(screen, []byte("x\n"))
	memory, memoryErr := unix.MmapPtr(-1, 0, nil, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	uffd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	ask := func(request uintptr, words ...uint64) {
		if errno == 0 {
			_, _, errno = unix.Syscall(unix.SYS_IOCTL, uffd, request, uintptr(unsafe.Pointer(&words[0])))
		}
	}
	const api, register = 0xc018aa3f, 0xc020aa00 // UFFDIO_API and UFFDIO_REGISTER of linux/userfaultfd.h
	ask(api, 0xaa, 0, 0)
	ask(register, uint64(uintptr(memory)), 4096, 1, 0)
	if err := errors.Join(err, openErr, writeErr, memoryErr); err != nil || errno != 0 {
		fmt.Println(err, errno)
		return
	}
	go func() { _, _, _ = unix.Syscall(unix.SYS_READ, uintptr(tty), uintptr(memory), 4096) }()
	time.Sleep(100 * time.Millisecond)
	for range 2 {
		go func() {
			for {
				_ = unix.IoctlSetPointerInt(tty, unix.TIOCSETD, 0)
			}
		}()
	}
	fmt.Println("ready")
	select {}
}

// A user may make a terminal hold anyone who opens it: others get their messages.
func TestTerminalThatHoldsWriters(t *testing.T) {
	other := logIn(t, anotherUser, takesMessages)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVariable + "=holder"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	line := proctest.Try(started(t, cmd).out.ReadString('\n')).OK(t)
	if line != "ready\n" {
		t.Skip("userfaultfd(2): " + line)
	}
	waits := 0
	for began := time.Now(); waits < 3; began = time.Now() {
		if (local.Terminals{}).Notify(oneUser, "x").Terminals == nil {
			waits++
		}
		require.Equal(t, 1, len(local.Terminals{}.Notify(anotherUser, "x").Terminals))
		require.Less(t, time.Since(began), 2*time.Second)
		time.Sleep(10 * time.Millisecond)
	}
	require.NotEmpty(t, other.shows(t, time.Minute))
}

// What only looks like a terminal is none.
func TestFilesAndLinksAreNotTerminals(t *testing.T) {
	proctest.NeedRoot(t)
	dev := t.TempDir()
	require.NoError(t, os.Mkdir(dev+"/pts", 0o755))
	file := dev + "/pts/1"
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o660))
	require.NoError(t, os.Chmod(file, 0o660))
	require.NoError(t, os.Chown(file, int(oneUser), 0))
	hers := logIn(t, oneUser, takesMessages)
	require.NoError(t, os.Symlink(hers.tty.Name(), dev+"/pts/2"))
	require.NoError(t, unix.Mknod(dev+"/pts/3", unix.S_IFCHR|0o620, int(unix.Mkdev(1, 3)))) // /dev/null
	require.NoError(t, os.Chown(dev+"/pts/3", int(oneUser), 0))
	require.Zero(t, local.Terminals{Dev: dev}.Notify(oneUser, "x"))
	require.Equal(t, "precious", proctest.ReadText(t, file))
	require.Empty(t, hers.shows(t, 50*time.Millisecond))
}

// Under tmux a message appears in one pane, and not over what tmux shows on the terminal that it runs on.
// TestAnotherUsersTmux: the terminals of a container have numbers of terminals of the host. They hide no message.
func TestAnotherUsersTmux(t *testing.T) {
	proctest.NeedRoot(t)
	sleep := proctest.ReadFile(t, "/bin/sleep")
	program := filepath.Join(t.TempDir(), "tmux: client")
	require.NoError(t, proctest.WriteProgram(program, sleep))
	first, second := logIn(t, oneUser, takesMessages), logIn(t, oneUser, takesMessages)
	other := exec.Command(program, "1000") // root's
	other.Stdin, other.SysProcAttr = second.tty, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	proctest.Start(t, other)
	require.Eventually(t, func() bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", other.Process.Pid))
		return string(name) == "tmux: client\n"
	}, 10*time.Second, time.Millisecond)
	shown := local.Terminals{}.Notify(oneUser, "genv says this once")
	require.ElementsMatch(t, []string{strings.TrimPrefix(first.tty.Name(), "/dev/"), strings.TrimPrefix(second.tty.Name(), "/dev/")}, shown.Terminals)
}

func TestTerminalsOfTmux(t *testing.T) {
	proctest.NeedRoot(t)
	proctest.NeedPrograms(t, "tmux")
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	for parent := dir; parent != "/tmp" && parent != "/"; parent = filepath.Dir(parent) {
		require.NoError(t, os.Chmod(parent, 0o777))
	}
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(oneUser), Gid: uint32(oneUser)}}
	tmux := func(args ...string) *exec.Cmd {
		cmd := exec.Command("tmux", append([]string{"-S", dir + "/socket", "-f", "/dev/null"}, args...)...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{"TERM=xterm", "HOME=" + dir, "SHELL=/bin/sh", "PATH=/usr/bin:/bin"}, dir, as
		return cmd
	}
	run := func(args ...string) string {
		return proctest.Output(t, tmux(args...))
	}
	run("new-session", "-d", "-x", "80", "-y", "24", "sleep 60")
	t.Cleanup(func() { _ = tmux("kill-server").Run() })
	run("split-window", "-d", "sleep 60")
	run("new-window", "-d", "sleep 60")
	outer := logIn(t, oneUser, takesMessages)
	client := tmux("attach")
	client.Stdin, client.Stdout, client.Stderr = outer.tty, outer.tty, outer.tty
	client.SysProcAttr = &syscall.SysProcAttr{Credential: as.Credential, Setsid: true, Setctty: true}
	require.NoError(t, client.Start())
	t.Cleanup(func() { _ = client.Wait() })
	t.Cleanup(func() { _ = tmux("kill-server").Run() })
	require.Eventually(t, func() bool { return run("list-clients") != "" }, time.Minute, 10*time.Millisecond)
	ssh := logIn(t, oneUser, takesMessages)

	panes := strings.Fields(run("list-panes", "-a", "-F", "#{pane_tty}"))
	require.Len(t, panes, 3)
	for i, pane := range panes {
		require.NoError(t, os.Chmod(pane, takesMessages))
		require.NoError(t, os.Chtimes(pane, time.Now().Add(-time.Duration((i+1)%3)*time.Minute), time.Time{}))
	}
	shown := local.Terminals{}.Notify(oneUser, "genv says this once")
	require.ElementsMatch(t, []string{strings.TrimPrefix(panes[2], "/dev/"), strings.TrimPrefix(ssh.tty.Name(), "/dev/")}, shown.Terminals)
	for i, pane := range []string{"0.0", "0.1", "1.0"} {
		require.Eventually(t, func() bool {
			return strings.Count(run("capture-pane", "-p", "-t", pane), "genv says this once") == i/2
		}, 10*time.Second, 10*time.Millisecond, pane)
	}
}
