package enforcement

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/controller"
)

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

// openStore opens the folder in which runs keep their memory; nil for none. Only a
// folder that was asked for and can't be used is an error.
func (s *Setup) openStore(getenv func(string) string, log zerolog.Logger) (*controller.MemoryStore, error) {
	name := "controller"
	if s.LocalName != "" {
		name = "enforce"
	}
	path := cmp.Or(s.StateDir, defaultStateDir(getenv, name))
	if path == "" {
		return nil, nil //nolint:nilnil // no memory is kept
	}
	isLoop := s.Interval > 0 && s.Cycles != 1
	store, err := controller.OpenStore(path)
	switch {
	case errors.Is(err, controller.ErrInUse) && (!isLoop || s.DryRun): // it reads what the loop writes
	case err != nil && s.StateDir != "":
		return nil, command.UsageError("--state-dir: %w", err)
	case err != nil:
		log.Warn().Err(err).Msg("this run keeps no memory; --state-dir DIR gives it a folder of its own")
		return nil, nil //nolint:nilnil // likewise
	}
	return store, nil
}

// load is the memory of the run before; empty if there is none.
func (l *loop) load() controller.FleetMemory {
	if l.store == nil {
		return controller.FleetMemory{}
	}
	memory, err := l.store.Load(l.setup.Hosts, l.program.Now())
	if err != nil {
		l.log.Warn().Err(err).Msg("the memory of the last run is dropped: all times start again")
	}
	return memory
}

// save keeps the memory after a cycle.
func (l *loop) save(m *controller.FleetMemory) {
	if err := l.store.Save(m, l.program.Now()); err != nil {
		l.log.Warn().Err(err).Msg("the memory could not be saved: after a restart, times would start again")
	}
}

// closeStore saves the memory a last time, and closes the folder for other runs.
func (l *loop) closeStore() {
	if l.store == nil {
		return
	}
	var err error
	if c := l.current; c != nil && !c.DryRun {
		err = l.store.Save(&c.Memory, l.program.Now())
	}
	if err = cmp.Or(err, l.store.Close()); err != nil {
		l.log.Warn().Err(err).Msg("the memory could not be saved: after a restart, times start again")
	}
}
