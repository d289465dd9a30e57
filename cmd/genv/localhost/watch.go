package localhost

import (
	"os"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// Watch begins to watch this machine for reasons to look at it. The caller closes the
// Watcher.
func (h *Host) Watch(getenv func(string) string, log zerolog.Logger) *watch.Watcher {
	smi := smiInPath{getenv}
	return watch.Open(watch.Config{
		DevDir:    DevDir(getenv, os.Geteuid()),
		StateDirs: []string{disk.Dir(getenv), h.Store.OwnedPath()},
		RunDir:    RunDir(getenv),
		Proc:      h.Machine.Proc,
		SMI: func() string {
			path, _ := smi.find() // empty if there is none
			return path
		},
		Debug: func(text string, err error) { log.Debug().Err(err).Msg(text) },
	})
}
