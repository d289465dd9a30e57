package enforcement

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (l *loop) load(ctx context.Context) controller.FleetMemory {
	if l.store == nil {
		return controller.FleetMemory{}
	}
	memory, err := l.store.Load(ctx)
	memory, other := memory.For(l.options.Hosts)
	for _, err := range []error{err, other} {
		if err != nil {
			l.log.Warn().Msg(text.Late(err, 0).Error())
		}
	}
	if hold := memory.Operator.Hold; hold != nil {
		l.log.Warn().Msg(hold.String())
	}
	return memory
}

func (l *loop) saveNow(store controller.Store) {
	saved, err := l.controller.Encode(l.program.Now())
	if err == nil {
		err = store.Save(context.Background(), saved)
	}
	l.saved(err)
}

func (l *loop) saved(err error) {
	if errors.Is(err, etcd.ErrConflict) {
		return // the election says why
	}
	now := l.program.Now()
	l.part.wrote(err, now)
	kind := "" // equal for errors with the same meaning
	var notShared *statedir.NotSharedError
	if isShared := errors.As(err, &notShared); isShared && !errors.Is(err, statedir.ErrTooLarge) && !etcd.Refused(err) {
		kind = "no answer"
	} else if err != nil {
		kind = err.Error()
	}
	if kind == l.unsaved {
		return
	}
	if l.unsaved == "" {
		l.unsavedSince = now
	}
	l.unsaved = kind
	switch {
	case err == nil:
		l.log.Warn().Msgf("the memory is saved again, after %s", text.ShortDuration(now.Sub(l.unsavedSince)))
	case notShared != nil:
		l.log.Warn().Str("error", text.Late(notShared.Err, 0).Error()).
			Msg("no other controller can take over as things are, since the memory can't be written to etcd" +
				nextStep(notShared.Err))
	default:
		l.log.Warn().Err(err).Msg("the memory could not be saved: after a restart, times would start again")
	}
}

func nextStep(err error) string {
	switch {
	case errors.Is(err, statedir.ErrTooLarge):
		return ""
	case etcd.IsFull(err):
		return "; next: `etcdctl compact REVISION` with the revision that `etcdctl endpoint status -w json` shows, " +
			"then `etcdctl defrag` and `etcdctl alarm disarm`"
	}
	return "; next: `etcdctl endpoint health`"
}

// defaultStateDir is systemd's StateDirectory=, or a folder in XDG_STATE_HOME; empty for neither.
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

const (
	controllerName  = "controller"               // of a fleet's controller
	serviceStateDir = "/var/lib/genv-controller" // of systemd's controller
)

// ControllerDirs are the folders of controllers: the named one, or the existing ones of the service and this user.
func ControllerDirs(getenv func(string) string, named string) (dirs []string) {
	if named != "" {
		return []string{named}
	}
	for _, dir := range []string{serviceStateDir, defaultStateDir(getenv, controllerName)} {
		if _, err := os.Stat(dir); dir != "" && !errors.Is(err, fs.ErrNotExist) {
			dirs = append(dirs, dir)
		}
	}
	return slices.Compact(dirs)
}

// openFolder returns nil for none. It fails only if --state-dir names the folder.
func openFolder(p *command.Program, options *Options, name string, log zerolog.Logger) (*statedir.Folder, error) {
	path := cmp.Or(options.StateDir, defaultStateDir(p.Getenv, name))
	if path == "" || options.LookOnly {
		return nil, nil //nolint:nilnil // there is none
	}
	open := statedir.Open
	if options.DryRun { // it must not lock out a controller that acts
		open = statedir.OpenToRead
	}
	store, err := open(path)
	if err == nil || errors.Is(err, statedir.ErrInUse) && !options.loops() { // reads what the loop writes
		return store, nil
	}
	if store != nil {
		_ = store.Close() // nothing was written
	}
	switch {
	case options.DryRun && errors.Is(err, fs.ErrNotExist):
	case options.StateDir != "":
		return nil, command.WrongFlag("state-dir", ": %w", err)
	default:
		log.Warn().Err(err).Msg("this run keeps no memory; --state-dir DIR gives it a folder of its own")
	}
	return nil, nil //nolint:nilnil // there is none
}
