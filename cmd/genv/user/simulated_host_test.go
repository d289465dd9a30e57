package user_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// station is a GPU host of eight simulated devices, for people of several uids.
type station struct {
	t     *testing.T
	dir   string
	state string // GENV_TMPDIR
	env   []string
}

func newStation(t *testing.T) *station {
	t.Helper()
	built := proctest.Try(genvtest.Programs()).OK(t)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Chmod(dir, 0o777))
	s := &station{t: t, dir: dir, state: filepath.Join(dir, "state")}
	s.devices(8)
	require.NoError(t, os.Mkdir(s.path("root"), 0o755)) // who runs the test keeps root's notes
	s.env = []string{
		"PATH=" + built + "/bin:" + built + "/driver:/usr/local/bin:/usr/bin:/bin",
		"GENV_CONFIG_DIR=off", "GENV_TMPDIR=" + s.state, "GENV_ROOT_DIR=" + s.path("root"), gpus.EnvDev + "=" + s.path("dev"), gpus.EnvFile + "=" + s.path("gpus.json"), "TZ=UTC",
	}
	return s
}

// parallelStation is a station for a test that runs in parallel with others.
func parallelStation(t *testing.T) *station {
	t.Helper()
	t.Parallel()
	return newStation(t)
}

func (s *station) path(name string) string { return filepath.Join(s.dir, name) }

// devices are how many nvidia-smi shows from now on.
func (s *station) devices(n int) {
	s.t.Helper()
	host := gpus.Driver{Devices: gpus.Devices("station", n, "NVIDIA H100 80GB HBM3", 81559)}
	require.NoError(s.t, host.Write(s.path("gpus.json")))
}

// account is somebody on the station: a uid, a home, and what else is in the environment.
type account struct {
	*station
	uid  int
	home string
	env  []string
}

// person is a user of a name that only the test knows.
func (s *station) person(name string, uid int) *account {
	s.t.Helper()
	if uid != os.Geteuid() {
		proctest.NeedRoot(s.t)
	}
	home := s.path(name)
	require.NoError(s.t, os.MkdirAll(home, 0o755))
	if uid != os.Geteuid() {
		require.NoError(s.t, os.Chown(home, uid, uid))
	}
	u := &account{station: s, uid: uid, home: home}
	if link, _ := os.Readlink("/proc/self/ns/pid"); uid != os.Geteuid() && link != "pid:[4026531836]" {
		require.Zero(s.t, s.admin().run("genv", "envs").Code) // in a container root has to be first
	}
	return u
}

// me is an ordinary user, whose processes are those of these tests: what all processes of a user do decides whether
// an environment has ended, and root has many others.
func (s *station) me() *account {
	uid := os.Geteuid()
	if uid == 0 {
		uid = int(proctest.OrdinaryUID)
	}
	return s.person("me", uid)
}

// admin is root, or who runs the tests.
func (s *station) admin() *account { return s.person("admin", os.Geteuid()) }

func (u *account) with(environ ...string) *account {
	v := *u
	v.env = append(append([]string{}, u.env...), environ...)
	return &v
}

func (u *account) command(words ...string) *exec.Cmd {
	program := words[0]
	if path, err := lookPath(u.environ(), program); err == nil {
		program = path
	}
	cmd := exec.Command(program, words[1:]...)
	cmd.Args[0] = words[0]
	cmd.Dir, cmd.Env = u.home, u.environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if u.uid != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.uid)}
	}
	return cmd
}

func (u *account) environ() []string {
	return append(append(append([]string{}, u.station.env...), "HOME="+u.home, "LOGNAME=somebody-else", "USER=somebody-else"), u.env...)
}

func lookPath(environ []string, program string) (string, error) {
	for _, entry := range environ {
		path, ok := strings.CutPrefix(entry, "PATH=")
		for _, dir := range filepath.SplitList(path) {
			candidate := filepath.Join(dir, program)
			if info, err := os.Stat(candidate); ok && err == nil && info.Mode()&0o111 != 0 {
				return candidate, nil
			}
		}
	}
	return "", exec.ErrNotFound
}

// run is a command without a shell.
func (u *account) run(words ...string) genvtest.Result {
	u.t.Helper()
	return genvtest.Exec(u.t, u.command(words...))
}

// shells are bash and zsh, without the files of the user who runs the test.
var shells = map[string][]string{"bash": {"bash", "--norc", "--noprofile"}, "zsh": {"zsh", "-f"}}

func eachShell(t *testing.T, test func(t *testing.T, kind string)) {
	for kind := range shells {
		t.Run(kind, func(t *testing.T) {
			proctest.NeedPrograms(t, kind)
			test(t, kind)
		})
	}
}

// terminal is a shell that stays open.
type terminal struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// open opens a shell and initialises it as the documents say.
func (u *account) open(kind string) *terminal {
	u.t.Helper()
	term := u.openBare(kind)
	require.Equal(u.t, said{}, term.say(`eval "$(genv shell --init)"`))
	return term
}

func (u *account) openBare(kind string) *terminal {
	u.t.Helper()
	cmd := u.command(shells[kind]...)
	in := proctest.Try(cmd.StdinPipe()).OK(u.t)
	out, w, err := os.Pipe()
	require.NoError(u.t, err)
	cmd.Stdout, cmd.Stderr = w, w
	require.NoError(u.t, cmd.Start())
	require.NoError(u.t, w.Close())
	term := &terminal{t: u.t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	u.t.Cleanup(func() {
		term.close()
		_ = out.Close()
	})
	return term
}

// close ends the shell, if it hasn't ended yet.
func (s *terminal) close() {
	_ = s.in.Close()
	_ = s.cmd.Wait()
}

func (s *terminal) pid() string { return fmt.Sprint(s.cmd.Process.Pid) }

// said is what came of a line: both streams as they came, and the status.
type said struct {
	text   string
	status string // empty for 0
}

const endOfAnswer = "\x01end of the answer "

// say has the shell read a line. What activate and attach say of the devices
// that they attached is left out: see sayAll.
func (s *terminal) say(line string) said {
	s.t.Helper()
	answer := s.sayAll(line)
	var text strings.Builder
	for line := range strings.Lines(answer.text) {
		if !strings.HasPrefix(line, "Attached GPU") && !strings.HasPrefix(line, "Detached GPU") && !strings.HasPrefix(line, "No GPU is attached yet") {
			text.WriteString(line)
		}
	}
	return said{text.String(), answer.status}
}

// withoutDelay leaves out that the driver takes long, as on a machine with many other tests.
func (s said) withoutDelay() said {
	return said{strings.ReplaceAll(s.text, "finding out which GPUs are in use takes long: it may take up to 35s\n", ""), s.status}
}

// withoutHolders leaves out the lines below a refusal that say who has what.
func (s said) withoutHolders() said {
	var text strings.Builder
	for line := range strings.Lines(s.text) {
		if !strings.HasPrefix(line, "    GPU ") {
			text.WriteString(line)
		}
	}
	return said{text.String(), s.status}
}

// sayAll has the shell read a line, and leaves nothing out.
func (s *terminal) sayAll(line string) said {
	s.t.Helper()
	proctest.Try(fmt.Fprintf(s.in, "%s\nprintf '%s%%s\\n' \"$?\"\n", line, `\001end of the answer `)).OK(s.t)
	var text strings.Builder
	for {
		got, err := s.out.ReadString('\n')
		require.NoError(s.t, err, "the shell ended: %s%s", text.String(), got)
		before, status, ended := strings.Cut(strings.TrimSuffix(got, "\n"), endOfAnswer)
		if !ended {
			text.WriteString(got)
			continue
		}
		text.WriteString(before)
		if status == "0" {
			status = ""
		}
		return said{text.String(), status}
	}
}

// stateFiles are the contents of the folder's files, to see that nothing changed.
func (s *station) stateFiles() map[string]string {
	s.t.Helper()
	files := map[string]string{}
	for _, name := range []string{"envs.json", "devices.json"} {
		data, err := os.ReadFile(filepath.Join(s.state, name))
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(s.t, err)
		}
		files[name] = string(data)
	}
	return files
}

func TestMain(m *testing.M) { genvtest.Main(m) }
