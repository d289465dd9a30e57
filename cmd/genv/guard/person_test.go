package guard

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
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard/guardtest"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// person is a process of a user in the site's cgroup, and in an environment.
type person struct {
	*site
	uid int
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (s *site) person(uid int) *person {
	s.Helper()
	folder, err := os.Open(s.cgroup)
	require.NoError(s, err)
	defer folder.Close()
	cmd := exec.Command(filepath.Join(place, "user"))
	cmd.Env, cmd.Dir, cmd.Stderr = append(s.environ(), guardtest.RoleVariable+"="+userRole, "GORACE=atexit_sleep_ms=0"), "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, UseCgroupFD: true, CgroupFD: int(folder.Fd())}
	p := &person{site: s, uid: uid, cmd: cmd}
	p.in, err = cmd.StdinPipe()
	require.NoError(s, err)
	out, err := cmd.StdoutPipe()
	require.NoError(s, err)
	p.out = bufio.NewReader(out)
	require.NoError(s, cmd.Start())
	s.Cleanup(p.end)
	return p
}

func (p *person) end() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

// activate registers the person's process in an environment named after its uid.
func (p *person) activate() *person {
	p.Helper()
	p.must("envs", "activate", "--eid", string(p.eid()), "--pid", fmt.Sprint(p.cmd.Process.Pid), "--uid", fmt.Sprint(p.uid), "--username", fmt.Sprint("u", p.uid))
	return p
}

func (p *person) eid() snapshot.EnvID { return snapshot.EnvID(fmt.Sprint("e", p.uid)) }

// attach attaches the person's environment as genv's commands do.
func (p *person) attach(index snapshot.DeviceIndex) {
	p.Helper()
	p.update(func(f *state.Files) error {
		_, err := f.Attach(state.AttachRequest{EID: p.eid(), Indices: []snapshot.DeviceIndex{index}, OverSubscribe: true, At: snapshot.DateOf(time.Now())})
		return err
	})
}

func (p *person) detach(index snapshot.DeviceIndex) {
	p.Helper()
	p.update(func(f *state.Files) error { f.Detach(p.eid(), index); return nil })
}

func (p *person) update(change func(*state.Files) error) {
	p.Helper()
	require.NoError(p, disk.New(p.state, disk.Config{RootDir: p.root}).Update(p.Context(), change))
}

func (p *person) ask(verb string, index int) string {
	p.Helper()
	return p.askPath(verb, p.node(index))
}

func (p *person) askPath(verb, path string) string {
	p.Helper()
	_, err := fmt.Fprintln(p.in, verb, path)
	require.NoError(p, err)
	answer, err := p.out.ReadString('\n')
	require.NoError(p, err)
	return strings.TrimSpace(answer)
}

// opens says whether the person can open a device now.
func (p *person) opens(index int) bool { return p.ask("open", index) == "allowed" }

// until waits until an open is allowed or denied, and returns when that was.
func (p *person) until(what string, index int) time.Time {
	p.Helper()
	var at int64
	_, err := fmt.Sscan(p.ask(what, index), &at)
	require.NoError(p, err, "not %s within 20 s", what)
	return time.Unix(0, at)
}

// user opens what it is told to. Without a driver behind the node, an open that is let through fails with ENXIO.
func user() error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		verb, path, _ := strings.Cut(lines.Text(), " ")
		fmt.Println(answer(verb, path))
	}
	return lines.Err()
}

func answer(verb, path string) string {
	begun := time.Now()
	for {
		_, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		result := "allowed"
		if errors.Is(err, unix.EPERM) {
			result = "denied"
		} else if !errors.Is(err, unix.ENXIO) {
			return fmt.Sprint(err)
		}
		switch {
		case verb == "open":
			return result
		case verb == result:
			return fmt.Sprint(time.Now().UnixNano())
		case time.Since(begun) > 20*time.Second:
			return "timeout"
		}
		time.Sleep(100 * time.Microsecond)
	}
}
