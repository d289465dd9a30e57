package fence

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// tokensFor is for how long a token is kept that no request renews. A conversation that has ended
// proves for that long what its last snapshot came from.
const tokensFor = 10 * time.Minute

// Tokens keeps the token of a conversation with a controller, a file that only root can list, and
// returns those of the others about the same state folder. A controller to which a name shows
// what it gave to another name knows that they lead to one machine, and no other machine can show it.
func Tokens(run, stateFolder, own string, now time.Time) ([]string, error) {
	d, err := folder.MakeTrusted(run)
	if err != nil {
		return nil, err
	}
	d.Close()
	dir := filepath.Join(run, "tokens", strings.ReplaceAll(stateFolder, "/", "."))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, own)
	if os.Chtimes(file, now, now) != nil {
		if err := cmp.Or(os.WriteFile(file, nil, 0o600), os.Chtimes(file, now, now)); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(dir)
	others := []string{}
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil || e.Name() == own:
		case now.Sub(info.ModTime()).Abs() > tokensFor:
			_ = os.Remove(filepath.Join(dir, e.Name()))
		default:
			others = append(others, e.Name())
		}
	}
	return others, err
}
