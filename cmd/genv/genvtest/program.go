package genvtest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
)

// Programs is the folder of genv and the stand-in for nvidia-smi, built once for all
// tests that need them as programs, where every user can run them.
var Programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "genv-test-")
	if err != nil {
		return "", err
	}
	programsDir = dir
	for name, source := range map[string]string{"bin/genv": "cmd/genv", "driver/nvidia-smi": "remote/testfleet/gpus/nvidia-smi"} {
		err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755)
		if err == nil {
			err = testfleet.InstallProgram(source, filepath.Join(dir, name))
		}
		if err != nil {
			return dir, err
		}
	}
	return dir, os.Chmod(dir, 0o755)
})

// Program is the path of genv as a program.
func Program(t testing.TB) string {
	t.Helper()
	built, err := Programs()
	require.NoError(t, err)
	return filepath.Join(built, "bin", "genv")
}

var programsDir string // empty while nothing was built

func removePrograms() {
	if programsDir != "" {
		_ = os.RemoveAll(programsDir)
	}
}

// Exec runs a program.
func Exec(t *testing.T, cmd *exec.Cmd) Result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Result{Out: out.String(), Err: errs.String(), Code: cmd.ProcessState.ExitCode()}
}

// ProgramWith is a genv with another checksum.
func ProgramWith(t *testing.T, more string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "genv")
	require.NoError(t, testfleet.CopyProgram(Program(t), program))
	require.NoError(t, exec.Command("sh", "-c", `printf %s "$1" >>"$0"`, program, more).Run()) // not written by this process
	return program
}
