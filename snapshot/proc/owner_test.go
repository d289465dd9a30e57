package proc_test

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Users for tests: they need no accounts, since the kernel knows only numbers.
const (
	alice   = 54321
	bob     = 54322
	subuid  = 2000000
	subuids = 65536
)

// shell runs a script that says that it is ready with a line.
func shell(t *testing.T, script string, attributes *syscall.SysProcAttr) (*exec.Cmd, io.Writer) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	attributes.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = attributes
	cmd.Dir = "/"
	_, in := firstLine(t, cmd)
	return cmd, in
}

func as(uid uint32) *syscall.Credential { return &syscall.Credential{Uid: uid, Gid: uid} }

// allowed skips where a user may make no user namespace.
func allowed(t *testing.T, uid uint32) {
	t.Helper()
	cmd := exec.Command("unshare", "-Ur", "true")
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as(uid)}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("users may make no user namespaces here: %v %s", err, out)
	}
}

func requireOwner(t *testing.T, pid int, want snapshot.UID) {
	t.Helper()
	got := proctest.Try(proc.FS{}.Owner(snapshot.PID(pid))).OK(t)
	require.Equal(t, want, got)
}

func TestOwnerOfAnOrdinaryProcess(t *testing.T) {
	requireOwner(t, os.Getpid(), snapshot.UID(os.Getuid()))
	if os.Geteuid() == 0 {
		cmd, _ := shell(t, "echo; cat", &syscall.SysProcAttr{Credential: as(alice)})
		requireOwner(t, cmd.Process.Pid, alice)
	}
}

// `unshare -Ur` shows its user as root, in a namespace and in one inside it.
func TestOwnerInTheNamespacesOfAUser(t *testing.T) {
	uid, attributes := uint32(os.Getuid()), func() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
	if uid == 0 {
		uid = alice
		attributes = func() *syscall.SysProcAttr { return &syscall.SysProcAttr{Credential: as(alice)} }
		allowed(t, alice)
	} else {
		allowed(t, 0)
	}
	for name, script := range map[string]string{
		"one":      "exec unshare -Ur sh -c 'echo; cat'",
		"nested":   "exec unshare -Ur unshare -Ur sh -c 'echo; cat'",
		"unmapped": "exec unshare -U sh -c 'echo; cat'",
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _ := shell(t, script, attributes())
			requireOwner(t, cmd.Process.Pid, snapshot.UID(uid))
		})
	}
}

// mapped is a process with uid inside in a user namespace of creator, for which root wrote the map, as newuidmap does.
func mapped(t *testing.T, creator uint32, inside int) *exec.Cmd {
	t.Helper()
	proctest.NeedRoot(t)
	attributes := &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(creator), Size: 1}, {ContainerID: 1, HostID: subuid, Size: subuids}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(creator), Size: 1}, {ContainerID: 1, HostID: subuid, Size: subuids}},
		GidMappingsEnableSetgroups: false,
		Credential:                 &syscall.Credential{Uid: uint32(inside), Gid: uint32(inside), NoSetGroups: true},
	}
	cmd, _ := shell(t, "echo; cat", attributes)
	return cmd
}

// The uids of /etc/subuid count for the owner of the namespace.
func TestOwnerOfASubuid(t *testing.T) {
	proctest.NeedRoot(t)
	allowed(t, alice)
	// alice makes a namespace, and root maps it; then a process in it takes another uid.
	cmd, in := shell(t, `exec unshare -U sh -c 'echo; read x; exec setpriv --reuid 7 --regid 7 --clear-groups sh -c "echo; cat" 2>/dev/null'`,
		&syscall.SysProcAttr{Credential: as(alice)})
	for _, file := range []string{"uid_map", "gid_map"} {
		path := "/proc/" + strconv.Itoa(cmd.Process.Pid) + "/" + file
		require.NoError(t, os.WriteFile(path, []byte("0 54321 1\n1 2000000 65536\n"), 0o644))
	}
	proctest.Try(in.Write([]byte("go\n"))).OK(t)
	require.Eventually(t, func() bool {
		uid, err := proc.FS{}.UID(snapshot.PID(cmd.Process.Pid))
		return err == nil && uid == subuid+6
	}, 10*time.Second, time.Millisecond)
	requireOwner(t, cmd.Process.Pid, alice)
}

// Root chose the uids of a namespace of its own (userns-remap, PrivateUsers).
func TestOwnerInANamespaceOfRoot(t *testing.T) {
	for inside, want := range map[int]snapshot.UID{0: bob, 7: subuid + 6} {
		cmd := mapped(t, bob, inside)
		requireOwner(t, cmd.Process.Pid, want)
	}
}

// A user who may not look at another user's namespace sees the real uid.
func TestOwnerWithoutPermission(t *testing.T) {
	proctest.NeedRoot(t)
	allowed(t, alice)
	cmd, _ := shell(t, "exec unshare -Ur sh -c 'echo; cat'", &syscall.SysProcAttr{Credential: as(alice)})
	asNobody(t, func() { requireOwner(t, cmd.Process.Pid, alice) })
}

func TestOwnerWithoutNamespacesInProc(t *testing.T) {
	fs := mount(t)
	add(t, fs, 10, map[string]string{"status": statusText("sh", 1001)})
	got := proctest.Try(fs.Owner(10)).OK(t)
	require.Equal(t, snapshot.UID(1001), got)
	require.ErrorIs(t, proctest.Try(fs.Owner(11)).Err, proc.ErrGone)
}

func TestParseUID(t *testing.T) {
	for name, row := range map[string]struct {
		text string
		want snapshot.UID
	}{
		"a user":                {statusText("sh", 1001), 1001},
		"root":                  {statusText("sh", 0), 0},
		"the highest":           {statusText("sh", 4294967294), 4294967294},
		"set-uid: the real one": {"Name:\tsu\nUid:\t1001\t0\t0\t0\n", 1001},
		"a name that lies":      {"Name:\tx\\nUid:\\t0\\t0\\t0\\t0\nUid:\t1001\t1001\t1001\t1001\n", 1001},
	} {
		uid := proctest.Try(proc.ParseUID([]byte(row.text))).OK(t, name)
		require.Equal(t, row.want, uid, name)
	}
}

func TestParseUIDRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":       "",
		"no uid":        "Name:\tsh\nGid:\t0\t0\t0\t0\n",
		"cut":           "Name:\tsh\nUid:\t10",
		"negative":      "Uid:\t-1\t0\t0\t0\n",
		"beyond 32 bit": "Uid:\t4294967296\t0\t0\t0\n",
		"a word":        "Uid:\troot\t0\t0\t0\n",
	} {
		require.Error(t, proctest.Try(proc.ParseUID([]byte(text))).Err, name)
	}
}

func TestUIDOfOneProcess(t *testing.T) {
	fs := mount(t)
	add(t, fs, 10, map[string]string{"status": statusText("sh", 1001)})
	add(t, fs, 11, map[string]string{"status": "rubbish"})
	uid := proctest.Try(fs.UID(10)).OK(t)
	require.Equal(t, snapshot.UID(1001), uid)
	require.ErrorIs(t, proctest.Try(fs.UID(11)).Err, proc.ErrUnreadable)
	require.ErrorIs(t, proctest.Try(fs.UID(12)).Err, proc.ErrGone)
}

func FuzzParseUID(f *testing.F) {
	f.Add([]byte(statusText("sh", 1001)))
	f.Add([]byte("Uid:\t-1\t0\t0\t0\n"))
	f.Add([]byte("Uid:"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if uid, err := proc.ParseUID(data); err != nil {
			require.Zero(t, uid)
		}
	})
}
