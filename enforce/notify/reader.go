package notify

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Inbox shows notices in a user's shells. A notice is read once somebody typed on a terminal after it appeared there.
// Until then each new terminal shows it.
type Inbox struct {
	Box  Box
	UID  snapshot.UID
	Path string // the user's own file, which remembers what was read, and what appeared where; empty for none
	// Terminal is that of the shell, such as pts/3. Without one, a shown notice doesn't count: it may have no reader.
	Terminal string
	Window   string // the tmux server or the editor that shows this terminal beside others; empty for none
	Dev      string // where the terminals are; empty for /dev
}

// appearance is where and when a notice appeared. Without a terminal the notice was read.
type appearance struct {
	ID       string    `json:"id"`
	Terminal string    `json:"terminal,omitempty"`
	Window   string    `json:"window,omitempty"`
	At       time.Time `json:"at,omitzero"`
}

const (
	maxAppearances = 1 << 20 // bytes of that file that are read: more than those that are kept
	maxRemembered  = 500     // that are kept in it
	// promptly is how soon after a notice the terminal itself may have answered a program's question, or have been
	// given to its user. Linux reports the time of typing to 8 seconds.
	promptly = 2 * time.Second
	together = time.Minute // in which the terminals of a window that open together show a notice once
)

// ErrNotRemembered is wrapped when the user's file can't be written: each shell shows the notices then.
var ErrNotRemembered = errors.New("what was shown can't be remembered")

// Show calls show with unread notices that aren't on this terminal yet, and later ones; or with all notices. While
// another shell does so, it shows nothing.
//
// While something is unread, the time of the user's file is before that of the notices; then it is the same. So a shell
// can tell from outside whether there is something to do.
func (r Inbox) Show(all bool, now time.Time, show func([]KeptMessage) error) error {
	list, written, err := r.Box.notices(r.UID, now)
	if err != nil || written.IsZero() {
		return err
	}
	_ = os.MkdirAll(filepath.Dir(r.Path), 0o700) // opening the file says why it can't be written
	f, err := os.OpenFile(r.Path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return errors.Join(show(list), fmt.Errorf("%w: %w", ErrNotRemembered, err))
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor fits
	if errors.Is(err, unix.EWOULDBLOCK) {
		if all {
			return show(list)
		}
		return nil
	}
	known := readAppearances(f)
	if first := slices.IndexFunc(list, func(n KeptMessage) bool { return all || r.wants(n, known, now) }); first >= 0 {
		if !all { // who reads of an end reads before it what was warned of
			anywhere := r
			anywhere.Window = ""
			first = slices.IndexFunc(list, func(n KeptMessage) bool { return anywhere.wants(n, known, now) })
		}
		if err := show(list[first:]); err != nil {
			return err
		}
		for _, n := range list[first:] {
			known = append(known, appearance{n.ID, r.Terminal, r.Window, now})
		}
	}
	if r.Terminal == "" {
		return nil
	}
	return r.remember(f, list, known, written)
}

func (r Inbox) wants(n KeptMessage, known []appearance, now time.Time) bool {
	return !slices.ContainsFunc(of(n, known), func(a appearance) bool {
		opened, _, ok := r.terminal(a.Terminal)
		return r.read(a) || a.Window != "" && a.Window == r.Window && now.Sub(a.At).Abs() < together ||
			a.Terminal == r.Terminal && ok && !opened.After(a.At)
	})
}

// of are the appearances of a notice, including those that root noted.
func of(n KeptMessage, known []appearance) (list []appearance) {
	for _, terminal := range n.Terminals {
		list = append(list, appearance{ID: n.ID, Terminal: terminal, At: n.Time})
	}
	for _, a := range known {
		if a.ID == n.ID {
			list = append(list, a)
		}
	}
	return list
}

func (r Inbox) read(a appearance) bool {
	if a.Terminal == "" {
		return true
	}
	opened, typed, ok := r.terminal(a.Terminal)
	return ok && !opened.After(a.At.Add(promptly)) && typed.After(a.At.Add(promptly))
}

// terminal is when a user's terminal was opened, and last typed on. A number may be reused by a terminal opened later.
func (r Inbox) terminal(name string) (opened, typed time.Time, ok bool) {
	var st unix.Stat_t
	if unix.Lstat(filepath.Join(cmp.Or(r.Dev, "/dev"), name), &st) != nil || st.Uid != uint32(r.UID) {
		return time.Time{}, time.Time{}, false
	}
	return time.Unix(st.Ctim.Unix()), time.Unix(st.Atim.Unix()), true
}

// remember also keeps notices of machines with the same name, which may share a home.
func (r Inbox) remember(f *os.File, list []KeptMessage, known []appearance, written time.Time) error {
	var kept []appearance
	for _, n := range list {
		here := of(n, known)
		if slices.ContainsFunc(here, r.read) {
			here = []appearance{{ID: n.ID}}
		} else {
			written = written.Add(-time.Second)
		}
		known = slices.DeleteFunc(known, func(a appearance) bool { return a.ID == n.ID })
		kept = append(kept, here...)
	}
	kept = append(known, kept...)
	data, err := json.Marshal(kept[max(0, len(kept)-maxRemembered):])
	if err == nil {
		_, err = f.WriteAt(append(data, '\n'), 0)
	}
	if err == nil {
		err = f.Truncate(int64(len(data)) + 1)
	}
	if err == nil { // a file system may cut off what is below a microsecond
		err = os.Chtimes(r.Path, time.Time{}, written.Truncate(time.Microsecond).Add(time.Microsecond))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotRemembered, err)
	}
	return nil
}

// A killed shell may leave a file that was cut off.
func readAppearances(f *os.File) []appearance {
	var list []appearance
	if json.NewDecoder(io.LimitReader(f, maxAppearances)).Decode(&list) != nil {
		return nil
	}
	return list
}
