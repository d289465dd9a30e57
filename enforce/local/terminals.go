package local

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Terminals shows messages to users as write(1) does: on their terminals that accept messages (mesg(1): the group may
// write). Of those that one program shows, such as tmux, the last used one gets it.
type Terminals struct {
	Dev  string           // where the terminals are; empty for /dev
	Host string           // named in the message; empty for "this host"
	Now  func() time.Time // the clock; nil for time.Now
}

const (
	maxTerminals = 8                      // of a user on which a message appears: those that were used last
	maxMessage   = 2000                   // bytes
	showWithin   = 500 * time.Millisecond // for the terminals of one user
	inUse        = 10 * time.Minute       // after input a terminal counts as in use: a detached tmux pane has no reader

	// Linux refuses a non-blocking write (EAGAIN) while another process writes to the terminal, or it is stopped
	// (Ctrl-S). So the write is repeated for a short time.
	maxWriteRetries = 5
	writeRetryPause = 2 * time.Millisecond
)

type terminal struct {
	path   string
	used   time.Time // when something was typed on it last
	device uint64
}

// held are users with a terminal that is still being opened.
var held sync.Map

// ShownOn is where a text was shown.
type ShownOn struct {
	Terminals []string // such as pts/3
	InUse     bool     // somebody typed on one of them in the last 10 minutes
}

// Notify shows a text with control characters escaped. It skips terminals that accept no output (Ctrl-S). By the line
// discipline a user can have the kernel block the open: until that ends, the result is zero.
func (t Terminals) Notify(uid snapshot.UID, text string) ShownOn {
	if _, stuck := held.Load(uid); stuck {
		return ShownOn{}
	}
	list := t.of(uid)
	message, now := t.message(text), t.now()
	done := make(chan ShownOn, 1)
	go func() {
		var shown ShownOn
		for _, each := range list[:min(len(list), maxTerminals)] {
			if show(each.path, uid, message) {
				shown.Terminals = append(shown.Terminals, strings.TrimPrefix(each.path, t.dev()+"/"))
				shown.InUse = shown.InUse || now.Sub(each.used).Abs() <= inUse
			}
		}
		done <- shown
	}()
	late := time.NewTimer(showWithin)
	defer late.Stop()
	select {
	case shown := <-done:
		return shown
	case <-late.C:
	}
	held.Store(uid, true)
	go func() {
		<-done
		held.Delete(uid)
	}()
	return ShownOn{}
}

// of lists the terminals of a user that accept messages, the last used one first.
func (t Terminals) of(uid snapshot.UID) []terminal {
	var list []terminal
	for _, pattern := range []string{"pts/[0-9]*", "tty[0-9]*"} {
		paths, _ := filepath.Glob(filepath.Join(t.dev(), pattern)) // fails only for a malformed pattern
		for _, path := range paths {
			var st unix.Stat_t
			if unix.Lstat(path, &st) == nil && acceptsMessages(&st, uid) {
				list = append(list, terminal{path, time.Unix(st.Atim.Unix()), st.Rdev})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b terminal) int { return b.used.Compare(a.used) })
	if len(list) > 1 {
		if once := withoutRepeats(uid, slices.Clone(list)); len(once) > 0 {
			return once
		}
	}
	return list
}

// withoutRepeats removes terminals that show the same as an earlier one, or as the panes of tmux and screen. Other
// users' processes prove nothing: those of containers have terminals with the same numbers.
func withoutRepeats(uid snapshot.UID, list []terminal) []terminal {
	pids, _ := proc.FS{}.PIDs() // without them each terminal is one of its own
	shownBy, shows := make(map[uint64]snapshot.PID), make(map[uint64]bool)
	for _, pid := range pids {
		switch p, err := (proc.FS{}).Stat(pid); {
		case err != nil || p.TTY == 0 || !runsAs(pid, uid):
		case p.Name == "tmux: client" || p.Name == "screen":
			shows[p.TTY] = true
		case p.PID == p.Session:
			shownBy[p.TTY] = p.PPID
		}
	}
	known := make(map[snapshot.PID]bool)
	return slices.DeleteFunc(list, func(each terminal) bool {
		by := shownBy[each.device]
		again := by > 1 && known[by]
		known[by] = true
		return again || shows[each.device]
	})
}

func runsAs(pid snapshot.PID, uid snapshot.UID) bool {
	own, err := proc.FS{}.UID(pid)
	return err == nil && own == uid
}

// Major device numbers of virtual consoles and pseudo-terminals (Documentation/admin-guide/devices.txt).
const (
	majorConsole  = 4
	majorFirstPTS = 136
	majorLastPTS  = 143
)

func acceptsMessages(st *unix.Stat_t, uid snapshot.UID) bool {
	major := unix.Major(st.Rdev)
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Uid == uint32(uid) && st.Mode&unix.S_IWGRP != 0 &&
		(major == majorConsole || major >= majorFirstPTS && major <= majorLastPTS)
}

// show checks the owner again after opening: numbers are reused.
func show(path string, uid snapshot.UID, message []byte) bool {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }() // the driver has what was written
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || !acceptsMessages(&st, uid) {
		return false
	}
	n, err := unix.Write(fd, message)
	for tries := 0; errors.Is(err, unix.EAGAIN) && tries < maxWriteRetries; tries++ {
		time.Sleep(writeRetryPause)
		n, err = unix.Write(fd, message)
	}
	return err == nil && n == len(message)
}

func (t Terminals) message(message string) []byte {
	if len(message) > maxMessage {
		message = text.Cut(message, maxMessage) + " …"
	}
	return fmt.Appendf(nil, "\r\n\aMessage from genv on %s at %s:\r\n  %s\r\n",
		text.Printable(cmp.Or(t.Host, "this host")),
		t.now().Format("15:04"), strings.ReplaceAll(text.PrintableLines(message), "\n", "\r\n  "))
}

func (t Terminals) dev() string { return cmp.Or(t.Dev, "/dev") }

// TerminalOf returns the name of a stream's terminal, such as pts/3; empty for none.
func TerminalOf(stream io.Writer) string {
	f, ok := stream.(*os.File)
	if !ok {
		return ""
	}
	fd := int(f.Fd()) //nolint:gosec // a descriptor fits
	path, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
	if _, notOne := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil || notOne != nil {
		return ""
	}
	return strings.TrimPrefix(path, "/dev/")
}

func (t Terminals) now() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return time.Now()
}

// Hostname returns the name of this host for Terminals; empty if unknown.
func Hostname() string {
	name, _ := os.Hostname()
	return name
}
