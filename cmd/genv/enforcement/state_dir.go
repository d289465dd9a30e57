package enforcement

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/remote/controller"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// stateDir is where a run keeps its memory.
type stateDir struct {
	path  string // empty for nowhere
	given bool   // by --state-dir
	loop  bool   // it runs for more than one cycle
}

// defaultStateDir is systemd's StateDirectory=, or else the user's own folder by the
// XDG base directory specification; empty if there is neither. name distinguishes
// what a user runs.
func defaultStateDir(getenv func(string) string, name string) string {
	if dir, _, _ := strings.Cut(getenv("STATE_DIRECTORY"), ":"); dir != "" {
		return dir
	}
	base := getenv("XDG_STATE_HOME")
	if home := getenv("HOME"); !filepath.IsAbs(base) && home != "" {
		base = filepath.Join(home, ".local", "state")
	}
	if !filepath.IsAbs(base) {
		return ""
	}
	return filepath.Join(base, "genv", name)
}

// remember has a controller continue with the memory of the run before, and keep its
// own. Only a folder that was asked for and can't be used is an error.
func (d stateDir) remember(c *controller.Controller, log zerolog.Logger) (*controller.Store, error) {
	if d.path == "" {
		return nil, nil //nolint:nilnil // no memory is kept
	}
	store, err := controller.OpenStore(d.path)
	switch {
	case errors.Is(err, controller.ErrInUse) && (!d.loop || c.DryRun): // it reads what the loop writes
	case err != nil && d.given:
		return nil, command.Usage("--state-dir: %w", err)
	case err != nil:
		log.Warn().Err(err).Msg("this run keeps no memory; --state-dir DIR gives it a folder of its own")
		return nil, nil //nolint:nilnil // likewise
	}
	memory, err := store.Load(c.Hosts, c.Now())
	if err != nil {
		log.Warn().Err(err).Msg("the memory of the last run is dropped: all times start again")
	}
	c.Memory = memory
	c.Save = func(m *controller.Memory) {
		if err := store.Save(m, c.Now()); err != nil {
			log.Warn().Err(err).Msg("the memory could not be saved: after a restart, times would start again")
		}
	}
	return store, nil
}

// forget saves the memory a last time, and gives the folder back.
func (e *Enforcement) forget() {
	if e.store == nil {
		return
	}
	c := e.fleet.Controller
	var err error
	if !c.DryRun {
		err = e.store.Flush(&c.Memory, c.Now())
	}
	if err = cmp.Or(err, e.store.Close()); err != nil {
		log := e.program.Logger(e.context)
		log.Warn().Err(err).Msg("the memory could not be saved: after a restart, times start again")
	}
}
