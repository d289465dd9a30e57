package proctest

import (
	"os"
	"os/exec"
	"testing"
)

// Need skips a test on a machine that lacks something. With CI=true that is a failure, so that the
// test isn't missed.
func Need(t testing.TB, has bool, what string) {
	t.Helper()
	switch {
	case has:
	case os.Getenv("CI") == "true":
		t.Fatal("CI=true, so this test must run, but it needs " + what)
	default:
		t.Skip("this test needs " + what)
	}
}

// NeedRoot skips a test that only root can do.
func NeedRoot(t testing.TB) {
	t.Helper()
	Need(t, os.Geteuid() == 0, "root: run it with sudo")
}

// NeedPrograms skips a test without programs of Debian.
func NeedPrograms(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := exec.LookPath(name)
		Need(t, err == nil, name+": `make test` as root installs it on Debian")
	}
}
