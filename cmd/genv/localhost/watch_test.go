package localhost_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
)

// The state wakes wherever it is: in the state folder, or in root's folder on a host where it belongs to root.
func TestChangesOfTheStateWake(t *testing.T) {
	for name, file := range map[string]string{"state folder": "state/envs.json", "root's folder": "root/host/devices.json"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, folder := range []string{"state", "root/host"} {
				require.NoError(t, os.MkdirAll(filepath.Join(dir, folder), 0o755)) //nolint:gosec // as on a host
			}
			env := map[string]string{"GENV_TMPDIR": filepath.Join(dir, "state"), "GENV_ROOT_DIR": filepath.Join(dir, "root")}
			getenv := func(name string) string { return env[name] }
			host := localhost.Open(command.Program{Getenv: getenv, Now: time.Now})
			watcher := host.Watch(getenv, zerolog.Nop())
			defer watcher.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte("{}"), 0o600))
			require.NoError(t, watcher.Wait(ctx))
		})
	}
}
