package command

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"golang.org/x/sys/unix"
)

// init lets the test binary be root's process and the monitor, for a script instead of this program.
func init() {
	if os.Args[0] == MonitorName {
		os.Exit(monitor(&exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", os.Args[2]}, Env: os.Environ()}))
	}
	if script, isRoot := os.LookupEnv("GENV_TEST_RELAY"); isRoot {
		code, err := relay([]string{"genv", script})
		if err != nil {
			panic(err)
		}
		os.Exit(code)
	}
}

// console is root's terminal, with a program that relay runs.
type console struct {
	t      *testing.T
	cmd    *exec.Cmd
	keys   *os.File
	tty    *os.File
	mu     sync.Mutex
	screen bytes.Buffer
	read   chan struct{} // closed when all of the screen is read
	pipe   bytes.Buffer  // what the program writes, where that is no terminal
}

func startRelay(t *testing.T, script string, piped bool) *console {
	keys, tty, err := pty.Open()
	require.NoError(t, err)
	exe := proctest.Try(os.Executable()).OK(t)
	c := &console{t: t, cmd: exec.Command(exe), keys: keys, tty: tty}
	c.cmd.Env = append(os.Environ(), "GENV_TEST_RELAY="+script, "GORACE=atexit_sleep_ms=0")
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = tty, tty, tty
	if piped {
		c.cmd.Stdout = &c.pipe
	}
	c.cmd.WaitDelay = 10 * time.Second
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, c.cmd.Start())
	c.read = make(chan struct{})
	go func() {
		defer close(c.read)
		buffer := make([]byte, 4096)
		for {
			n, err := keys.Read(buffer)
			c.mu.Lock()
			c.screen.Write(buffer[:n])
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		_ = tty.Close()
		<-c.read
		_ = keys.Close()
	})
	return c
}

func (c *console) shown() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(c.screen.String(), "\r\r\n", "\r\n") // before the program has the terminal, both add one
}

func (c *console) await(text string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return strings.Contains(c.shown(), text) }, 20*time.Second, 10*time.Millisecond, "%q", text)
}

func (c *console) press(keys string) {
	proctest.Try(c.keys.WriteString(keys)).OK(c.t)
}

// echoes says whether the terminal is one as a shell has it, not one for a full screen.
func (c *console) echoes() bool {
	settings := proctest.Try(unix.IoctlGetTermios(int(c.keys.Fd()), unix.TCGETS)).OK(c.t)
	return settings.Lflag&(unix.ECHO|unix.ICANON|unix.ISIG) == unix.ECHO|unix.ICANON|unix.ISIG && settings.Oflag&unix.OPOST != 0
}

func (c *console) ends(code int) {
	c.t.Helper()
	_ = c.cmd.Wait()
	require.Equal(c.t, code, c.cmd.ProcessState.ExitCode(), c.shown())
	require.True(c.t, c.echoes(), "the terminal is as it was")
	require.NoError(c.t, c.tty.Close()) // so that the reader comes to the end
	<-c.read
}

// ticks is one process: a shell that is stopped while it starts another one isn't seen to stop.
const ticks = `exec perl -e '$| = 1; while (1) { print "tick\\n"; select(undef, undef, undef, 0.05) }'`

const prompts = `stty -echo; printf 'secret? '; read x; stty echo; echo "read $x"; `

func TestRelayOfATerminal(t *testing.T) {
	t.Run("what is typed and shown", func(t *testing.T) {
		c := startRelay(t, `test -t 0 && test -t 1 && test -t 2 && echo terminals; `+prompts+`exit 3`, false)
		c.await("secret? ")
		require.Eventually(t, func() bool { return !c.echoes() }, 10*time.Second, 10*time.Millisecond)
		c.press("abc\n")
		c.ends(3)
		require.Equal(t, "terminals\r\nsecret? read abc\r\n", c.shown())
	})
	t.Run("it isn't root's own", func(t *testing.T) {
		c := startRelay(t, `echo "at $(readlink /proc/self/fd/0) $(tty </dev/tty)"`, false)
		c.ends(0)
		own := proctest.Try(os.Readlink("/proc/self/fd/0")).OK(t)
		require.NotContains(t, c.shown(), "at "+own+" ")
		name := strings.Fields(c.shown())
		require.Equal(t, "at", name[0])
		require.NotEqual(t, fmt.Sprint("/dev/pts/", proctest.Try(unix.IoctlGetInt(int(c.keys.Fd()), unix.TIOCGPTN)).OK(t)), name[1])
	})
}

func TestKeysOfATerminal(t *testing.T) {
	for name, script := range map[string]string{"before it reads": "", "while it reads": prompts} {
		t.Run("Ctrl-C "+name, func(t *testing.T) {
			c := startRelay(t, `trap 'echo interrupted; exit 5' INT; echo ready; `+script+`while :; do sleep 0.05; done`, false)
			c.await("ready")
			if script != "" {
				c.await("secret? ")
				require.Eventually(t, func() bool { return !c.echoes() }, 10*time.Second, 10*time.Millisecond)
			}
			c.press("\x03")
			c.await("interrupted")
			c.ends(5)
		})
		t.Run("Ctrl-Z "+name, func(t *testing.T) {
			c := startRelay(t, `echo ready; `+script+ticks, false)
			c.await("ready")
			if script != "" {
				c.await("secret? ")
				require.Eventually(t, func() bool { return !c.echoes() }, 10*time.Second, 10*time.Millisecond)
				c.press("x\n")
			}
			c.await("tick")
			for range 2 {
				c.press("\x1a")
				require.Eventually(t, func() bool {
					var status unix.WaitStatus
					pid := proctest.Try(unix.Wait4(c.cmd.Process.Pid, &status, unix.WUNTRACED|unix.WNOHANG, nil)).OK(t)
					return pid != 0 && status.Stopped()
				}, 20*time.Second, 10*time.Millisecond)
				require.True(t, c.echoes(), "as it was, for the shell")
				stopped := ""
				require.Eventually(t, func() bool {
					stopped = c.shown()
					time.Sleep(200 * time.Millisecond)
					return stopped == c.shown()
				}, 20*time.Second, time.Millisecond, "the program is stopped")
				require.NoError(t, c.cmd.Process.Signal(unix.SIGCONT))
				require.Eventually(t, func() bool { return strings.Count(c.shown(), "tick") > strings.Count(stopped, "tick")+2 }, 10*time.Second, 10*time.Millisecond)
			}
			require.NoError(t, c.cmd.Process.Signal(unix.SIGTERM))
			c.ends(128 + int(unix.SIGTERM))
		})
	}
}

// hangupIgnored is as the tests were started: what handles the signal later doesn't change it for programs.
var hangupIgnored = signal.Ignored(unix.SIGHUP)

func TestWhatElseComesToATerminal(t *testing.T) {
	t.Run("its size", func(t *testing.T) {
		c := startRelay(t, `trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done`, false)
		c.await("ready")
		require.NoError(t, pty.Setsize(c.keys, &pty.Winsize{Rows: 33, Cols: 111}))
		c.await("33 111")
		require.NoError(t, c.cmd.Process.Signal(unix.SIGTERM))
		c.ends(128 + int(unix.SIGTERM))
	})
	t.Run("a pipe beside it", func(t *testing.T) {
		c := startRelay(t, `test -t 1 || echo pipe; echo said >&2; `+strings.ReplaceAll(prompts, "printf 'secret? '", "printf 'secret? ' >&2")+`exit 4`, true)
		c.await("said")
		c.await("secret? ")
		require.Eventually(t, func() bool { return strings.Contains(c.shown(), "secret? ") && !c.echoing() }, 10*time.Second, 10*time.Millisecond)
		c.press("abc\n")
		c.ends(4)
		require.Equal(t, "pipe\nread abc\n", c.pipe.String())
	})
	t.Run("what it leaves behind", func(t *testing.T) {
		c := startRelay(t, `trap '' HUP; sleep 1000 & echo "left $!"; exit 0`, false)
		c.ends(0)
		_, left, _ := strings.Cut(c.shown(), "left ")
		pid := proctest.Try(strconv.Atoi(strings.TrimSpace(left))).OK(t, c.shown())
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	})
	t.Run("root's terminal goes", func(t *testing.T) {
		beats := filepath.Join(t.TempDir(), "beats")
		c := startRelay(t, `trap '' HUP; echo "pid $$"; while echo beat && echo . >>`+beats+`; do sleep 0.02; done; echo over >>`+beats, false)
		c.await("beat")
		require.NoError(t, c.tty.Close())
		require.NoError(t, c.keys.Close())
		require.Eventually(t, func() bool {
			data, _ := os.ReadFile(beats)
			return strings.HasSuffix(string(data), "over\n")
		}, 20*time.Second, 20*time.Millisecond, "the program's terminal is gone, too")
	})
	t.Run("root's process is killed", func(t *testing.T) {
		c := startRelay(t, `trap '' HUP; echo "pid $$ "; while :; do sleep 0.02; done`, false)
		c.await("pid ")
		_, said, _ := strings.Cut(c.shown(), "pid ")
		pid := proctest.Try(strconv.Atoi(strings.Fields(said)[0])).OK(t)
		require.NoError(t, c.cmd.Process.Kill())
		require.Eventually(t, func() bool { return unix.Kill(pid, 0) != nil }, 20*time.Second, 10*time.Millisecond)
	})
	t.Run("signals from elsewhere", func(t *testing.T) {
		if hangupIgnored {
			t.Skip("skipped: this test was started with SIGHUP ignored, as by nohup")
		}
		c := startRelay(t, `trap 'echo reload' HUP; echo ready; while :; do sleep 0.05; done`, false)
		c.await("ready")
		require.NoError(t, c.cmd.Process.Signal(unix.SIGHUP))
		c.await("reload")
		require.NoError(t, c.cmd.Process.Signal(unix.SIGTERM))
		c.ends(128 + int(unix.SIGTERM))
	})
}

// echoing says whether the terminal shows what is typed.
func (c *console) echoing() bool {
	settings := proctest.Try(unix.IoctlGetTermios(int(c.keys.Fd()), unix.TCGETS)).OK(c.t)
	return settings.Lflag&unix.ECHO != 0
}
