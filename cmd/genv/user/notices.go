package user

import (
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
	unseen := false
	return &cli.Command{
		Name:   "notices",
		Usage:  "print the messages for you on this machine of the last 14 days",
		Flags:  []cli.Flag{command.Bool(&unseen, "new", "only those that were not shown before")},
		Action: func(*cli.Context) error { return p.notices(unseen) },
	}
}

func (p *program) box() notify.Box { return notify.Box{Root: disk.RootDir(p.Getenv)} }

// seenNotices is the user's own file with the notices that were shown. A home may be shared by several machines.
func (p *program) seenNotices() notify.SeenNotices {
	dir := p.Getenv("XDG_STATE_HOME")
	if home := p.Getenv("HOME"); !filepath.IsAbs(dir) && filepath.IsAbs(home) {
		dir = filepath.Join(home, ".local", "state")
	}
	if !filepath.IsAbs(dir) {
		return notify.SeenNotices{}
	}
	name := "notices." + strings.ReplaceAll(enforcelocal.Hostname(), "/", "-")
	return notify.SeenNotices{Path: filepath.Join(dir, "genv", name)}
}

func ownUID() snapshot.UID { return snapshot.UID(os.Geteuid()) } //nolint:gosec // the kernel's uids fit

// hasNotices says whether there are notices that were not shown. What can't be read
// doesn't concern a shell that starts.
func (p *program) hasNotices() bool {
	unseen, err := p.box().Unseen(ownUID(), p.seenNotices(), p.Now())
	return err == nil && len(unseen) > 0
}

func (p *program) notices(unseen bool) error {
	if unseen {
		err := p.box().ShowUnseen(ownUID(), p.seenNotices(), p.Now(), p.printNotices)
		if errors.Is(err, notify.ErrShownElsewhere) {
			return nil
		}
		return err
	}
	list, err := p.box().Notices(ownUID(), p.Now())
	if err != nil {
		return err
	}
	if len(list) == 0 {
		fmt.Fprintln(p.Err, "There are no messages for you on this machine.")
	}
	return p.printNotices(list)
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
