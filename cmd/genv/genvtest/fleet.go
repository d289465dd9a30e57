package genvtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/configfile"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// Configure makes a configuration folder with files, which are name and text in turn.
func Configure(t *testing.T, files ...string) string {
	dir := filepath.Join(t.TempDir(), "genv")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for i := 0; i < len(files); i += 2 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600))
	}
	t.Setenv(configfile.Variable, dir)
	return dir
}

// Outside is the environment of a process that is in none of genv's. An empty
// one would say nothing: /proc shows that for processes it can't tell of, too.
var Outside = []string{"PATH=/usr/bin:/bin"}

// StartFleet starts simulated hosts, each at an address of its own.
func StartFleet(t *testing.T, hosts ...*inprocess.Server) *inprocess.Fleet {
	for i := range hosts {
		hosts[i].Address = fmt.Sprintf("127.91.7.%d", i+1)
	}
	f, err := inprocess.Start(t.TempDir(), 0, hosts...)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

// Date is a time as 1.4.3 writes it.
func Date(t *testing.T, text string) snapshot.Date {
	d, err := snapshot.ParseDate(text)
	require.NoError(t, err)
	return d
}

// Viewer is a client of a controller's socket.
type Viewer struct {
	*live.Client
	t *testing.T
}

// View is a Viewer of the socket at path.
func View(t *testing.T, path string) *Viewer {
	v := &Viewer{live.NewClient(path), t}
	t.Cleanup(v.Close)
	return v
}

// Wait waits for a state for which ok holds.
func (v *Viewer) Wait(what string, ok func(*live.Fleet) bool) (fleet *live.Fleet) {
	v.t.Helper()
	Eventually(v.t, what, func() bool {
		var err error
		fleet, err = v.Fleet(v.t.Context())
		return err == nil && ok(fleet)
	})
	return fleet
}
