package sshd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Require skips the test, with the reason, where no fleet can run. With CI=true in
// the environment it fails instead, so that the test isn't missed.
func Require(t testing.TB) {
	t.Helper()
	err := Available()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("CI=true, so tests with a real sshd must run, but %v", err)
	default:
		t.Skipf("skipped, because it needs a real sshd: %v", err)
	}
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
