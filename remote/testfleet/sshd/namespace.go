package sshd

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// A cover hides what is at Target behind Source, a file or a folder.
type cover struct{ Source, Target string }

// coverAndExec puts the covers on, two arguments each, then becomes the program
// behind "--". /run is emptied: sshd wants its folder there, and without nscd's
// socket no program asks the machine's daemon for users.
const coverAndExec = `set -e
mount -t tmpfs -o mode=0755 none /run
mkdir /run/sshd
while [ "$1" != -- ]; do mount --bind "$1" "$2"; shift 2; done
shift
exec "$@"`

// inNamespace is a command that runs in its own mount namespace behind covers,
// and ends with this process.
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

// A namespace is a mount namespace that is held open, so that the kernel cannot
// give its number to another one.
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

// empty kills all processes in the namespace, since sshd leaves its sessions
// behind when it ends, and closes it.
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
