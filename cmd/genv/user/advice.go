package user

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// In the words of 1.4.3.
var (
	errNotActive = errors.New("Not running in an active environment")     //nolint:staticcheck // 1.4.3's words
	errActive    = errors.New("Already running in an active environment") //nolint:staticcheck // 1.4.3's words
)

// errEnded means that the environment of this shell no longer exists: the state
// files were reset, or the processes that were registered in it have ended.
func errEnded(eid snapshot.EnvID) error {
	const ended = "Environment %s of this shell has ended: run `genv deactivate`, and then `genv activate` for a new one"
	return fmt.Errorf(ended, text.Shown(string(eid))) //nolint:staticcheck // as 1.4.3's words above
}

// advised is the text of an error, with the next step if the cause doesn't say it.
func advised(err error) string {
	for _, advice := range []struct {
		causes []error
		step   string
	}{
		{[]error{unix.ENOSPC, unix.EDQUOT}, "nothing was changed: make room there, then run it again"},
		{[]error{unix.EROFS}, "nothing was changed: remount it read-write, or set GENV_TMPDIR on the whole host"},
		{[]error{nvidiasmi.ErrNoDevices}, "genv can't attach GPUs until then"},
	} {
		if slices.ContainsFunc(advice.causes, func(cause error) bool { return errors.Is(err, cause) }) {
			return text.OneLine(err.Error()) + "; " + advice.step
		}
	}
	if holders := holdersOf(err); len(holders) > 0 {
		return err.Error() + holderLines(holders)
	}
	var path *fs.PathError
	if errors.As(err, &path) && errors.Is(path, fs.ErrPermission) {
		return text.OneLine(err.Error()) + "; ask its owner or root for permission, or set GENV_TMPDIR on the whole " +
			"host"
	}
	return err.Error()
}

// holdersOf are the environments that have the devices that were refused.
func holdersOf(err error) []state.Conflict {
	var unavailable *state.UnavailableError
	if errors.As(err, &unavailable) {
		return unavailable.Conflicts
	}
	return nil
}

// maxHolders is how many holders a refusal names.
const maxHolders = 16

// holderLines are the holders, each on a line, to follow the line of 1.4.3.
func holderLines(holders []state.Conflict) string {
	var text strings.Builder
	for i, holder := range holders {
		if i == maxHolders {
			fmt.Fprintf(&text, "\n    and %d more; `genv gpus` lists them", len(holders)-maxHolders)
			break
		}
		text.WriteString("\n    " + holder.String())
	}
	return text.String()
}
