package nvidiasmi_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// runVariable makes the test binary run this program, with lockVariable as its lock file.
const (
	runVariable  = "GENV_TEST_RUN"
	lockVariable = "GENV_TEST_LOCK"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(runVariable); path != "" {
		_, _ = nvidiasmi.Exec{Path: path, Lock: os.Getenv(lockVariable)}.Run(context.Background())
		return
	}
	goleak.VerifyTestMain(m)
}

// constructed is an output from testdata/constructed.
func constructed(t testing.TB, name string) []byte {
	t.Helper()
	data := proctest.ReadFile(t, filepath.Join("testdata/constructed", name))
	return data
}

// stdout is an answer of lines on stdout.
func stdout(text string) nvidiasmi.RunResult { return nvidiasmi.RunResult{Stdout: []byte(text)} }

// runner is a Runner that is a function.
type runner func(ctx context.Context, args ...string) (nvidiasmi.RunResult, error)

func (r runner) Run(ctx context.Context, args ...string) (nvidiasmi.RunResult, error) {
	return r(ctx, args...)
}
