package enforcement

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/statedir"
)

// defaultStateDir is systemd's StateDirectory=, or else the user's own folder by the XDG base directory specification;
// empty if there is neither. name distinguishes what a user runs.
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

// controllerName distinguishes a controller on a fleet from one on a single machine.
const controllerName = "controller"

// serviceStateDir is where the controller that systemd runs keeps its state.
const serviceStateDir = "/var/lib/genv-controller"

// ControllerDirs are where a controller may have kept its state, if none is given: that of
// the service, and one's own. Those that are missing are left out.
func ControllerDirs(getenv func(string) string) (dirs []string) {
	for _, dir := range []string{serviceStateDir, defaultStateDir(getenv, controllerName)} {
		if _, err := os.Stat(dir); dir != "" && !errors.Is(err, fs.ErrNotExist) {
			dirs = append(dirs, dir)
		}
	}
	return slices.Compact(dirs)
}

// openFolder opens the folder in which runs keep their memory; nil for none. Only a folder that was asked for and can't
// be used is an error.
func openFolder(p *command.Program, options *Options, name string, log zerolog.Logger) (*statedir.Folder, error) {
	path := cmp.Or(options.StateDir, defaultStateDir(p.Getenv, name))
	if path == "" || options.LookOnly {
		return nil, nil //nolint:nilnil // there is none
	}
	open := statedir.Open
	if options.DryRun { // it must not keep a controller that acts from its folder
		open = statedir.OpenToRead
	}
	store, err := open(path)
	switch {
	case err == nil, errors.Is(err, statedir.ErrInUse) && !options.loops(): // it reads what the loop writes
		return store, nil
	case options.DryRun && errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilnil // there is none
	}
	if store != nil {
		_ = store.Close() // it was only read
	}
	if options.StateDir != "" {
		return nil, command.WrongFlag("state-dir", ": %w", err)
	}
	log.Warn().Err(err).Msg("this run keeps no memory; --state-dir DIR gives it a folder of its own")
	return nil, nil //nolint:nilnil // there is none
}
