// Package packaging has the tests of what `make packages` makes: the contents of the
// packages, the systemd units, and what installing, upgrading and removing does on a
// private machine (machine_test.go). It has no code of its own: build.sh makes the packages.
//
//	go test ./packaging
package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if programsDir != "" {
		_ = os.RemoveAll(programsDir)
	}
	os.Exit(code)
}

var programsDir string // empty while nothing was built

// programs builds genv and the simulated nvidia-smi once for all tests.
var programs = sync.OnceValues(func() (dir string, err error) {
	if programsDir, err = os.MkdirTemp("", "genv-packaging-"); err != nil {
		return "", err
	}
	for program, source := range map[string]string{"genv": "cmd/genv", "nvidia-smi": "remote/testfleet/gpus/nvidia-smi"} {
		if err := testfleet.InstallProgram(source, filepath.Join(programsDir, program)); err != nil {
			return "", err
		}
	}
	return programsDir, nil
})

// program is the path of a program that programs builds.
func program(t testing.TB, name string) string {
	t.Helper()
	dir := proctest.Try(programs()).OK(t)
	return filepath.Join(dir, name)
}

// nfpm is the program that writes packages, which the Makefile installs.
func nfpm(t testing.TB) string {
	t.Helper()
	found := proctest.Try(filepath.Glob("../.tools/nfpm-*/nfpm")).OK(t)
	if len(found) == 0 {
		skip(t, "nfpm is not installed: `make test` installs it")
	}
	return proctest.Try(filepath.Abs(found[len(found)-1])).OK(t)
}

// skip says why a test can't run here. With CI=true that is a failure.
func skip(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("CI=true, so this test must run, but " + why)
	}
	t.Skip("skipped: " + why)
}

// packed has the folders of packages that were made, by version.
var packed = map[string]string{}

// pack makes the .deb and the .rpm for this architecture with the built genv, once for all tests, and
// returns their folder.
func pack(t testing.TB, version string) string {
	t.Helper()
	if packed[version] == "" {
		genv := program(t, "genv")
		dist := filepath.Join(programsDir, version)
		packInto(t, dist, version, "deb rpm", genv, "DEB_COMPRESSION=none")
		packed[version] = dist
	}
	return packed[version]
}

func packInto(t testing.TB, dist, version, formats, genv string, env ...string) {
	t.Helper()
	cmd := exec.Command("packaging/build.sh")
	cmd.Dir = ".."
	cmd.Env = append(append(os.Environ(), env...), "DIST="+dist, "VERSION="+version, "FORMATS="+formats,
		"ARCHES="+runtime.GOARCH, "NFPM="+nfpm(t), "GENV="+genv, "SOURCE_DATE_EPOCH=1700000000")
	proctest.Output(t, cmd)
}

// only is the one file in a folder that matches.
func only(t testing.TB, folder, pattern string) string {
	t.Helper()
	found := proctest.Try(filepath.Glob(filepath.Join(folder, pattern))).OK(t)
	require.Len(t, found, 1, pattern)
	return found[0]
}

// output runs a program that must succeed, and returns its stdout.
func output(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s: %s%s", strings.Join(args, " "), out, stderr.String())
	return string(out)
}
