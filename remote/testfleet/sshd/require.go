package sshd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Require skips the test, with the reason, where no fleet can run.
func Require(t testing.TB) {
	t.Helper()
	err := Available()
	proctest.Need(t, err == nil, fmt.Sprintf("a real sshd, and %v", err))
}

// Available says why no fleet can run on this machine; nil if it can.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("this is not root")
	}
	for _, program := range []string{"sshd", "ssh", "sudo", "mount"} {
		if _, err := find(program); err != nil {
			return err
		}
	}
	out, err := inNamespace(nil, "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount namespaces are not available here: %w: %s", err, out)
	}
	return nil
}

// find looks for a program in PATH and where root's programs are.
func find(program string) (string, error) {
	for _, folder := range []string{"", "/usr/sbin/", "/sbin/", "/usr/local/sbin/"} {
		if path, err := exec.LookPath(folder + program); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s on this machine: `make test` as root installs it on Debian", program)
}
