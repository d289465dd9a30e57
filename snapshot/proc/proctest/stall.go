package proctest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// stallVariable says which process of Stall the test's program is.
const stallVariable = "GENV_TEST_STALL"

// Stall starts an ordinary user's process, with its memory held by a FUSE server that never answers, with inExec in
// execve(2). It sees so many other mounts, and ends with the test. TestMain must call RunStall.
func Stall(t *testing.T, inExec bool, mounts ...int) (pid snapshot.PID, uid snapshot.UID) {
	t.Helper()
	NeedRoot(t)
	uid, program, attr := OrdinaryUser(t)
	dir := t.TempDir()
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		require.NoError(t, os.Chmod(at, 0o755)) //nolint:gosec // the user has to get there
	}
	node := filepath.Join(dir, "fuse")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "mount"), 0o755)) //nolint:gosec // the user mounts there
	err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229)))
	if err == nil {
		err = os.Chmod(node, 0o666) //nolint:gosec // as /dev/fuse is elsewhere
	}
	if file, openErr := os.OpenFile(node, os.O_RDWR, 0); err != nil || openErr != nil {
		t.Skipf("no FUSE: %v %v", err, openErr)
	} else {
		_ = file.Close()
	}
	cmd := exec.Command(program)
	cmd.Env = []string{
		stallVariable + "=user", "DIR=" + dir, "EXEC=" + strconv.FormatBool(inExec),
		fmt.Sprint("MOUNTS=", append(mounts, 0)[0]),
	}
	cmd.SysProcAttr, cmd.Stderr = attr, os.Stderr
	out := Try(cmd.StdoutPipe()).OK(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { // without the server, the kernel answers with an error
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if reason, none := strings.CutPrefix(line, "none: "); none {
		t.Skip("FUSE in a user namespace: " + reason)
	}
	require.NoError(t, err)
	n := Try(strconv.Atoi(strings.TrimSpace(line))).OK(t)
	return snapshot.PID(n), uid //nolint:gosec // a PID fits
}

// RunStall is the processes that Stall starts. It returns at once in a test.
func RunStall() {
	var err error
	switch os.Getenv(stallVariable) {
	case "":
		return
	case "user":
		err = enterNamespace()
	case "server":
		err = serveStall(os.Getenv("DIR"))
	case "stalled":
		err = stall(os.Getenv("DIR"), os.Getenv("EXEC") == "true")
	}
	fmt.Println("none:", err)
	os.Exit(0)
}

// enterNamespace has the server run as root of a user namespace that the user creates.
func enterNamespace() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), stallVariable+"=server")
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	return cmd.Run()
}

// stall never returns: the kernel writes what it has changed in the file before it maps something else there.
func stall(dir string, inExec bool) error {
	file, err := os.OpenFile(filepath.Join(dir, "mount/file"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	const size = 1 << 16
	memory, err := unix.MmapPtr(int(file.Fd()), 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	*(*byte)(memory) = 1
	if inExec {
		return unix.Exec("/bin/sleep", []string{"sleep", "60"}, nil)
	}
	_, err = unix.MmapPtr(-1, 0, memory, size, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
	return err
}

// The requests of FUSE that the kernel makes here, from include/uapi/linux/fuse.h.
const (
	fuseLookup, fuseGetattr, fuseSetattr    = 1, 3, 4
	fuseOpen, fuseRead, fuseWrite, fuseInit = 14, 15, 16, 26
)

func serveStall(dir string) error {
	fd, err := unix.Open(filepath.Join(dir, "fuse"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	mount := filepath.Join(dir, "mount")
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := unix.Mount("test", mount, "fuse", 0, options); err != nil {
		return err
	}
	for mounts, _ := strconv.Atoi(os.Getenv("MOUNTS")); mounts > 0; mounts-- {
		if err := unix.Mount("/etc", "/etc", "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), stallVariable+"=stalled")
	cmd.SysProcAttr, cmd.Stdout = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, os.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	for request := make([]byte, 1<<17); ; {
		n, err := unix.Read(fd, request)
		if err != nil {
			return err
		}
		opcode := binary.NativeEndian.Uint32(request[4:])
		if opcode == fuseWrite {
			fmt.Println(cmd.Process.Pid)
			continue
		}
		answer, failed := answerFUSE(opcode, request[40:n])
		header := make([]byte, 16)
		binary.NativeEndian.PutUint32(header, uint32(16+len(answer))) //nolint:gosec // it is small
		if failed {
			binary.NativeEndian.PutUint32(header[4:], ^uint32(unix.ENOSYS)+1)
		}
		copy(header[8:], request[8:16])
		if _, err := unix.Write(fd, append(header, answer...)); err != nil {
			return err
		}
	}
}

// answerFUSE has a folder (1) with one file (2) of zeros.
func answerFUSE(opcode uint32, body []byte) (answer []byte, failed bool) {
	words := func(n int, at map[int]uint32) []byte {
		var b bytes.Buffer
		for i := range n {
			_ = binary.Write(&b, binary.NativeEndian, at[i])
		}
		return b.Bytes()
	}
	attributes := words(22, map[int]uint32{0: 2, 2: 1 << 20, 15: unix.S_IFREG | 0o666, 16: 1, 20: 4096})
	switch opcode {
	case fuseInit:
		return words(16, map[int]uint32{0: 7, 1: 31, 2: 1 << 16, 5: 1 << 16, 6: 1}), false
	case fuseLookup:
		return append(words(10, map[int]uint32{0: 2, 4: 1000, 6: 1000}), attributes...), false
	case fuseGetattr, fuseSetattr:
		return append(words(4, map[int]uint32{0: 1000}), attributes...), false
	case fuseOpen:
		return words(4, map[int]uint32{0: 1}), false
	case fuseRead:
		return make([]byte, binary.NativeEndian.Uint32(body[16:])), false
	}
	return nil, true
}
