package host_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// ownHost is a simulated host on which root owns the state, for the real program.
type ownHost struct {
	t           *testing.T
	dir, binary string
	mounts      int // a process with the mount namespace of all commands; 0 for this one's
}

func newOwnHost(t *testing.T) *ownHost {
	proctest.NeedRoot(t)
	dir := proctest.PublicDir(t, 0o755)
	for name, mode := range map[string]os.FileMode{"tmp": os.ModeSticky | 0o777, "root": 0o755} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	self := proctest.ReadFile(t, genvtest.Program(t))
	h := &ownHost{t: t, dir: dir, binary: filepath.Join(dir, "genv")}
	require.NoError(t, proctest.WriteProgram(h.binary, self))
	return h
}

func (h *ownHost) withGPUs() *ownHost {
	require.NoError(h.t, os.Mkdir(filepath.Join(h.dir, "bin"), 0o755))
	require.NoError(h.t, os.Symlink(sshd.Build(h.t, "remote/testfleet/gpus/nvidia-smi"), filepath.Join(h.dir, "bin/nvidia-smi")))
	require.NoError(h.t, gpus.Driver{Devices: gpus.H100s("own", 2)}.Write(filepath.Join(h.dir, "gpus.json")))
	return h
}

func (h *ownHost) as(uid uint32, args ...string) *exec.Cmd {
	words := append([]string{h.binary}, args...)
	if h.mounts != 0 {
		id := strconv.Itoa(int(uid))
		words = append([]string{"nsenter", "--target", strconv.Itoa(h.mounts), "--mount", "--setuid", id, "--setgid", id, "--"}, words...)
		uid = 0
	}
	cmd := exec.CommandContext(h.t.Context(), words[0], words[1:]...)
	cmd.Env = append(cmd.Environ(), "PATH=/usr/bin:/bin:"+filepath.Join(h.dir, "bin"), "GENV_SIM_GPUS="+filepath.Join(h.dir, "gpus.json"), "HOME=/nonexistent", "GENV_CONFIG_DIR=off",
		"GENV_TMPDIR="+filepath.Join(h.dir, "tmp/genv"), "GENV_ROOT_DIR="+filepath.Join(h.dir, "root"))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// does runs a command of a user, and returns all that it prints.
func (h *ownHost) does(uid uint32, args ...string) (text string, ok bool) {
	out, err := h.as(uid, args...).CombinedOutput()
	return string(out), err == nil
}

// mayStall reports whether a process, by its folder in /proc, may be another test's, whose memory does not answer.
func mayStall(dir string) bool {
	exe, _ := os.Readlink(filepath.Join(dir, "exe")) // none if it has ended
	return filepath.Base(exe) == "sleep" || strings.HasSuffix(exe, ".test")
}

// must is what a command of a user prints, which has to succeed.
func (h *ownHost) must(uid uint32, args ...string) string {
	h.t.Helper()
	text, ok := h.does(uid, args...)
	require.True(h.t, ok, "%v: %s", args, text)
	return text
}

// fails is what a command of a user prints, which has to fail.
func (h *ownHost) fails(uid uint32, args ...string) string {
	h.t.Helper()
	text, ok := h.does(uid, args...)
	require.False(h.t, ok, "%v: %s", args, text)
	return text
}

// interrupt presses Ctrl-C while a command runs, which ends it.
func (h *ownHost) interrupt(after time.Duration, uid uint32, args ...string) {
	h.t.Helper()
	cmd := h.as(uid, args...)
	cmd.SysProcAttr.Setpgid = true
	require.NoError(h.t, cmd.Start())
	time.Sleep(after)
	began := time.Now()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // or it has ended
	_ = cmd.Wait()
	require.Less(h.t, time.Since(began), time.Second, "%v", args)
}

// serve starts the service, and waits until it answers.
func (h *ownHost) serve() *exec.Cmd {
	h.t.Helper()
	cmd := h.as(0, "host", "serve")
	var errors bytes.Buffer
	cmd.Stderr = &errors
	proctest.Start(h.t, cmd)
	require.Eventually(h.t, func() bool {
		text, _ := h.does(4001, "host", "status")
		return strings.Contains(text, "served")
	}, 30*time.Second, 20*time.Millisecond, "%s", &errors)
	return cmd
}

// What was answered is there after a kill -9; without the service users are told what to do
// while root's looks go on; and the state can be given back.
func TestTheServiceOfAHost(t *testing.T) {
	h := newOwnHost(t)
	const alice, bob = 4001, 4002
	pid := fmt.Sprint(proctest.Sleeper(t, alice))
	h.must(alice, "envs", "activate", "--eid", "before", "--pid", pid)

	first := h.serve()
	require.Contains(t, h.fails(0, "host", "serve"), "the service runs already")
	require.Contains(t, h.fails(0, "host", "handover"), "the service runs already")
	for range 3 {
		h.must(alice, "envs", "config", "--eid", "before", "name", "--name", "renamed")
		require.NoError(t, first.Process.Kill())
		_ = first.Wait()
		require.Contains(t, h.fails(alice, "envs", "config", "--eid", "before", "name", "--name", "lost"), "systemctl start genv-host")
		for _, uid := range []uint32{0, bob} {
			require.Contains(t, h.must(uid, "usage", "snapshot", "--type", "envs"), `renamed`)
		}
		first = h.serve()
	}
	require.Contains(t, h.fails(bob, "envs", "config", "--eid", "before", "name", "--name", "bobs"), "only that user and root may change it")
	require.Contains(t, h.fails(bob, "envs", "activate", "--eid", "x", "--pid", pid), "belongs to uid 4001")

	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	require.NoError(t, first.Wait(), "SIGTERM ends it cleanly")
	require.Contains(t, h.must(alice, "host", "status", "--format", "json"), `"owner":"root"`)
	h.must(0, "host", "handover")
	h.must(alice, "envs", "config", "--eid", "before", "name", "--name", "again")
	require.Contains(t, h.must(bob, "envs"), "again")
	require.Contains(t, h.must(bob, "host", "status"), "every user's")
}

// Whatever a user does to the state folder, root judges by its own state, waits for nothing, and
// says whose doing it is; so does the service.
func TestTheFolderIsTamperedWith(t *testing.T) {
	proctest.NeedRoot(t)
	proctest.NeedPrograms(t, "unshare", "nsenter", "mount", "setpriv")
	for name, tt := range map[string]struct {
		tamper, says string
		now          bool // it can be mended
	}{
		"a FUSE file system that never answers": {
			`exec 5<>/dev/fuse; mount -i -t fuse -o fd=5,rootmode=40000,user_id=4002,group_id=4002,allow_other none "$1"`,
			"tampering: a fuse file system of uid 4002 is mounted at ", false,
		},
		"a FUSE file system for its user alone": {
			`mkdir -p "$1/devices"; exec 5<>/dev/fuse; mount -i -t fuse -o fd=5,rootmode=40000,user_id=4002,group_id=4002 none "$1/devices"`,
			"tampering: a fuse file system of uid 4002 is mounted at ", false,
		},
		"a tmpfs":           {`mount -t tmpfs -o uid=4002,mode=0777 none "$1"`, "tampering: a tmpfs file system of uid 4002 is mounted at ", false},
		"a replaced folder": {`rm -r "$1"; setpriv --reuid 4002 --clear-groups mkdir -m 0777 "$1"`, "what was found there is of uid 4002 with mode 0777", true},
		"a removed folder":  {`rm -r "$1"`, "was removed or replaced", true},
	} {
		t.Run(name, func(t *testing.T) { tamper(t, tt.tamper, tt.says, tt.now, true) })
		if !tt.now {
			t.Run(name+", shared", func(t *testing.T) { tamper(t, tt.tamper, tt.says, tt.now, false) })
		}
	}
}

func tamper(t *testing.T, script, says string, mended, owned bool) {
	h := newOwnHost(t).withGPUs()
	const alice = 4001
	job := proctest.Sleeper(t, alice)
	var service *exec.Cmd
	if owned {
		service = h.serve()
	}
	h.must(alice, "envs", "activate", "--eid", "job", "--pid", fmt.Sprint(job))
	if owned {
		require.NoError(t, service.Process.Signal(syscall.SIGTERM))
		require.NoError(t, service.Wait())
	}
	h.must(0, "usage", "snapshot")

	attack := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script+" || exit; echo done; exec sleep 1000", "sh", filepath.Join(h.dir, "tmp/genv"))
	attack.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out := proctest.Try(attack.StdoutPipe()).OK(t)
	proctest.Start(t, attack)
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "done\n" {
		t.Skip("nothing can be mounted here")
	}
	h.mounts = attack.Process.Pid
	for again := range 2 {
		begun := time.Now()
		text, ok := h.does(0, "usage", "snapshot")
		require.Equal(t, owned, ok, text) // what is in shared state is unknown
		require.Less(t, time.Since(begun), 10*time.Second)
		require.Equal(t, owned, strings.Contains(text, `"job"`))
		if again == 0 || !mended {
			require.Contains(t, text, says)
		} else {
			require.NotContains(t, text, "tampering")
		}
	}
	if owned {
		h.serve()
		h.must(alice, "envs", "config", "--eid", "job", "name", "--name", "renamed")
	}
}

// A user who holds the lock of the state files delays the takeover, and is named.
func TestTheTakeoverWaitsForTheLock(t *testing.T) {
	h := newOwnHost(t)
	t.Parallel()
	h.must(4001, "envs")
	lock := proctest.Try(os.OpenFile(filepath.Join(h.dir, "tmp/genv/genv.lock"), os.O_RDWR, 0)).OK(t)
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))

	service := h.as(0, "host", "serve")
	stderr := proctest.Try(service.StderrPipe()).OK(t)
	proctest.Start(t, service)
	line := proctest.Try(bufio.NewReader(stderr).ReadString('\n')).OK(t)
	require.Contains(t, line, "genv.lock is locked by process "+strconv.Itoa(os.Getpid()))
	require.Contains(t, line, "of uid 0")
	require.Contains(t, h.must(4001, "host", "status"), "every user's")

	require.NoError(t, lock.Close())
	require.Eventually(t, func() bool {
		text, _ := h.does(4001, "host", "status")
		return strings.Contains(text, "served") && strings.Contains(text, "root's, in")
	}, 30*time.Second, 20*time.Millisecond)
}

// A process that its user's file system holds is waited for neither by the service nor by the commands of others.
func TestTheServiceBesideAStalledProcess(t *testing.T) {
	for name, inExec := range map[string]bool{"munmap": false, "execve": true} {
		t.Run(name, func(t *testing.T) {
			h := newOwnHost(t)
			pid, uid := proctest.Stall(t, inExec)
			h.serve()
			job := proctest.Sleeper(t, 4001)
			owned := func(eid string, pid int) []string {
				return []string{"envs", "activate", "--eid", eid, "--pid", strconv.Itoa(pid)}
			}
			for _, row := range []struct {
				uid  uint32
				args []string
				says string
			}{
				{4001, []string{"host", "status"}, "State"},
				{4001, owned("honest", int(job)), ""},
				{4001, []string{"envs"}, "honest"},
				{uint32(uid), owned("stuck", int(pid)), ""},
				{4001, []string{"envs"}, "honest"},
				{0, []string{"envs"}, "honest"},
			} {
				began := time.Now()
				text, _ := h.does(row.uid, row.args...)
				require.Less(t, time.Since(began), 5*time.Second, "%v: %s", row.args, text)
				require.Contains(t, text, row.says)
				for _, after := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
					h.interrupt(after, row.uid, row.args...)
				}
			}
		})
	}
}

// Whatever moment the service is killed at, what was answered is there, once; and what is reserved is kept for its owner.
func TestReserveOverKilledServices(t *testing.T) {
	h := newOwnHost(t).withGPUs()
	const alice, bob = 4001, 4002
	text, ok := h.does(alice, "reserve", "--gpus", "1", "--for", "8h")
	require.False(t, ok)
	require.Contains(t, text, "root's service keeps reservations")
	service := h.serve()
	text, ok = h.does(alice, "reserve", "--gpus", "1", "--for", "8h")
	require.False(t, ok)
	require.Contains(t, text, "only root may reserve GPUs while no policy is enforced here")
	made := map[string]bool{}
	for i := range 6 {
		done := make(chan string)
		go func() {
			text, _ := h.does(0, "reserve", "--user", "4001", "--gpus", "1", "--from", "tomorrow 12:0"+string(rune('0'+i)), "--for", "1m")
			done <- text
		}()
		time.Sleep(rand.N(200 * time.Millisecond))
		require.NoError(t, service.Process.Kill())
		_ = service.Wait()
		service = h.serve()
		if id := regexp.MustCompile(`as ([0-9a-f]{8})\n`).FindStringSubmatch(<-done); id != nil {
			made[id[1]] = true
		}
	}
	text, ok = h.does(bob, "reserve", "--list", "--format", "json")
	require.True(t, ok, text)
	var listed struct{ Reservations []snapshot.Reservation }
	require.NoError(t, json.Unmarshal([]byte(text), &listed))
	froms := map[time.Time]int{}
	for _, r := range listed.Reservations {
		delete(made, r.ID)
		froms[r.From]++
		require.Equal(t, 1, froms[r.From])
	}
	require.Empty(t, made)
	text, ok = h.does(0, "reserve", "--user", "4001", "--gpus", "2", "--for", "2h", "--reason", "a deadline")
	require.True(t, ok, text)
	require.Regexp(t, `^Reserved: 2 GPUs for uid 4001 from \w{3} 20\d\d-\d\d-\d\d \d\d:\d\d \S+ to \w{3} .* \(2h\), as [0-9a-f]{8}\n$`, text)
	text, ok = h.does(bob, "run", "--gpus", "1", "true")
	require.False(t, ok)
	require.Contains(t, text, "2 GPUs of this host are reserved by uid 4001, until")
	text, ok = h.does(alice, "run", "--gpus", "2", "true")
	require.True(t, ok, text)
	text, _ = h.does(bob, "reserve", "--list")
	require.Contains(t, text, "a deadline")
	files := proctest.Try(filepath.Glob(filepath.Join(h.dir, "root/*/reservations.json"))).OK(t)
	require.Len(t, files, 1)
	require.NoError(t, os.WriteFile(files[0], []byte("{"), 0o644))
	text, _ = h.does(bob, "gpus")
	require.Contains(t, text, "the reservations are unknown: ")
}
