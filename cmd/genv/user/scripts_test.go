package user_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// TestScripts runs the scripts of testdata/script, each on a station of its own
// with two live processes of this user, $PID and $OTHER.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, script := range scripts {
		t.Run(filepath.Base(script), func(t *testing.T) {
			s := newStation(t)
			s.env = append(s.env, "PID="+pidText(startSleeper(t, os.Getuid())), "OTHER="+pidText(startSleeper(t, os.Getuid())),
				"UID="+strconv.Itoa(os.Getuid()), "GENV_AUDIT_LOG="+s.path("audit.jsonl"))
			testscript.Run(t, testscript.Params{Files: []string{script}, Setup: func(env *testscript.Env) error {
				for _, entry := range s.env {
					name, value, _ := strings.Cut(entry, "=")
					env.Setenv(name, value)
				}
				return nil
			}})
		})
	}
}
