package user

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *program) noticesCommand() *cli.Command {
	unread := false
	return &cli.Command{
		Name:   "notices",
		Usage:  "print the messages for you on this machine of the last 14 days",
		Flags:  []cli.Flag{command.Bool(&unread, "new", "only those that you have not read, as a shell shows them")},
		Action: func(*cli.Context) error { return p.notices(unread) },
	}
}

func (p *program) box() notify.Box { return notify.Box{Root: disk.RootDir(p.Getenv)} }

// noticesRead is the user's own file with what was read. A home may be shared by several machines.
func (p *program) noticesRead() string {
	dir := p.Getenv("XDG_STATE_HOME")
	if home := p.Getenv("HOME"); !filepath.IsAbs(dir) && filepath.IsAbs(home) {
		dir = filepath.Join(home, ".local", "state")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "genv", "notices."+strings.ReplaceAll(enforcelocal.Hostname(), "/", "-"))
}

func ownUID() snapshot.UID { return snapshot.UID(os.Geteuid()) } //nolint:gosec // the kernel's uids fit

func (p *program) notices(unread bool) error {
	shown := false
	err := notify.Reader{
		Box: p.box(), UID: ownUID(), Path: p.noticesRead(), Terminal: enforcelocal.TerminalOf(p.Out),
		Window: cmp.Or(p.Getenv("TMUX"), p.Getenv("STY"), p.Getenv("VSCODE_IPC_HOOK_CLI")),
	}.Show(!unread, p.Now(), func(list []notify.KeptNotice) error {
		shown = len(list) > 0
		return p.printNotices(list)
	})
	if unread || err != nil && !errors.Is(err, notify.ErrNotRemembered) {
		return err
	}
	if !shown {
		fmt.Fprintln(p.Err, "There are no messages for you on this machine.")
	}
	return nil
}

// printNotices prints notices as they would have appeared on a terminal.
func (p *program) printNotices(list []notify.KeptNotice) error {
	for _, n := range list {
		_, err := fmt.Fprintf(p.Out, "Message from genv on %s at %s:\n  %s\n",
			text.Printable(enforcelocal.Hostname()), n.Time.Local().Format(time.DateTime),
			strings.ReplaceAll(strings.TrimRight(text.PrintableLines(n.Text), "\n"), "\n", "\n  "))
		if err != nil {
			return err
		}
	}
	return nil
}
