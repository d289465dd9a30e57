package sshd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A cover hides what is at Target behind Source, a file or a folder.
type cover struct{ Source, Target string }

// coverAndExec puts the covers on, two arguments each, then becomes the program
// behind "--". /run is emptied: sshd wants its folder there, and without nscd's
// socket no program asks the machine's daemon for users. Nothing is installed into /usr/bin.
const coverAndExec = `set -e
mount -t tmpfs -o mode=0755 none /run
mkdir /run/sshd
mount --bind /usr/bin /usr/bin
mount -o remount,bind,ro /usr/bin
while [ "$1" != -- ]; do mount --bind "$1" "$2"; shift 2; done
shift
exec "$@"`

// inNamespace is a command that runs in its own mount namespace behind covers, and ends with this process.
func inNamespace(covers []cover, program string, args ...string) *exec.Cmd {
	argv := []string{"-c", coverAndExec, "sh"}
	for _, c := range covers {
		argv = append(argv, c.Source, c.Target)
	}
	cmd := exec.Command("/bin/sh", append(append(argv, "--", program), args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS, // Go makes all mounts private, too
		Pdeathsig:    syscall.SIGKILL,
	}
	return cmd
}

// A namespace is a mount namespace that is held open, so that the kernel cannot give its number to another one.
type namespace struct {
	file *os.File
	name string
}

func namespaceOf(pid int) (*namespace, error) {
	path := fmt.Sprintf("/proc/%d/ns/mnt", pid)
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	name, err := os.Readlink(path)
	if err != nil {
		return nil, err
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err == nil && own == name {
		err = fmt.Errorf("process %d is in this process's own mount namespace", pid)
	}
	return &namespace{file, name}, err
}

// empty kills all processes in the namespace, since sshd leaves its sessions behind when it ends, and closes it.
func (n *namespace) empty() error {
	for { // until it is found empty: processes may be forking
		pids, err := n.processes()
		if err != nil || len(pids) == 0 {
			return n.file.Close()
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}

func (n *namespace) processes() (pids []int, err error) {
	links, err := filepath.Glob("/proc/[0-9]*/ns/mnt")
	for _, link := range links {
		if name, err := os.Readlink(link); err != nil || name != n.name {
			continue // it has ended, is a zombie, or is in another namespace
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(link))))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, err
}

// A daemon is an sshd and the mount namespace it shares with its sessions.
type daemon struct {
	cmd       *exec.Cmd
	stderr    bytes.Buffer // what mount or sshd printed before the log was open; read it after ended
	ended     chan struct{}
	namespace *namespace
}

func (d *daemon) stop() error {
	_ = d.cmd.Process.Kill() // it may have ended
	<-d.ended
	if d.namespace == nil {
		return nil
	}
	return d.namespace.empty()
}

// privateVariable is the folder of the files of Private. If it is set, the program
// was started again and is in its own mount namespace.
const privateVariable = "GENV_TEST_PRIVATE"

// privateSudoers keeps no variable, whatever the machine's own rules keep.
const privateSudoers = `Defaults !syslog, !mail_badpass, !mail_no_user, !mail_no_host, !mail_no_perms, lecture=never
root ALL=(ALL:ALL) ALL
`

// Private gives this process accounts, rules of sudo and terminals of its own, so that tests do not depend on those of
// the machine, or of other tests with the same users: it starts the program again in a mount namespace where
// /etc/passwd and the others have root alone, and returns there. Call it first in TestMain, and remove when the tests
// are done. It does nothing for an ordinary user. Where root can have no namespace it fails, and the machine's own
// accounts stay.
func Private() (remove func(), err error) {
	remove = func() {}
	if dir, ok := os.LookupEnv(privateVariable); ok {
		return func() { _ = os.RemoveAll(dir) }, os.Unsetenv(privateVariable)
	}
	if os.Geteuid() != 0 {
		return remove, nil // nothing here is done as another user, or with sudo
	}
	dir, err := os.MkdirTemp("", "genv-private-")
	if err != nil {
		return remove, err
	}
	return remove, errors.Join(execPrivate(dir), os.RemoveAll(dir))
}

// execPrivate returns only when it failed; then this thread, which may be in
// another namespace than the others, is given to no goroutine any more.
func execPrivate(dir string) error {
	unix.Umask(0o022) // all users read these files
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	covers, err := writeEtc(dir, append(accountFiles(sitePeople, func(string) string { return "/" }),
		etcFile{"sudoers", 0o440, privateSudoers},
		etcFile{"zsh/zshenv", 0o644, ""})) // which zsh reads even with -f
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, c := range covers {
		if err := unix.Mount(c.Source, c.Target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", c.Target, err)
		}
	}
	if err := unix.Mount("devpts", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0600"); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{program}, os.Args[1:]...) // by its path, since a fuzz test starts itself again
	return unix.Exec(program, args, append(os.Environ(), privateVariable+"="+dir))
}
