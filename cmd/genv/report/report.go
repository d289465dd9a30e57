// Package report has the command `genv remote report`, which says who used which GPUs over time,
// and the flags with which `genv remote enforce` keeps what it reads. It reads the
// folder of the controller or a server, and connects to no host and to no controller.
//
//	commands = append(commands, report.Command(program))
//	open, err := report.ReadUsage(c, &program, leader, log)
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// program is genv as this command sees it.
type program struct{ command.Program }

// Command is `genv remote report`.
func Command(with command.Program) *cli.Command {
	p := &program{with}
	return &cli.Command{
		Name:  "report",
		Usage: "say who used which GPUs over time: GPU hours, idle hours, findings",
		Flags: append(flags(),
			&cli.StringFlag{Name: "state-dir", Category: command.Site + command.Shared + command.Unless("STATE_DIRECTORY"), DefaultText: "that of the service, or one's own", Usage: "the `DIR` of the controller"},
			&cli.StringFlag{Name: "usage-db", Category: command.Site + command.Shared, DefaultText: "the file in --state-dir", Usage: "the `URL` of the PostgreSQL database to which controllers write, such as postgres://genv@db.lab/genv"},
			&cli.StringFlag{Name: "usage-fleet", Category: command.Site + command.Shared, DefaultText: "the only one there", Usage: "the `NAME` of the fleet in that database"},
			&cli.StringFlag{Name: "policy", Category: command.Site + command.Top + command.OrNone, Usage: "take the groups of --by group from this policy `FILE`, or none; by default policy.yaml in ~/.config/genv or /etc/genv"},
		),
		Action: p.report,
	}
}

func (p *program) report(c *cli.Context) error {
	r, err := p.read(c)
	if err != nil {
		return err
	}
	var groups map[string][]string
	if r.query.By == usage.ByGroup {
		if groups, err = p.groups(r.policy); err != nil {
			return err
		}
	}
	s, err := p.openToRead(c.Context, &r.place)
	if err != nil {
		return err
	}
	defer s.Close()
	d, err := usage.Read(c.Context, s, r.query, time.Local, func(ctx context.Context, users []string) func(string) []string {
		return groupsOf(ctx, groups, users)
	})
	if err != nil {
		return fmt.Errorf("the usage database: %w", err)
	}
	d.Top(r.top)
	if now := p.Now().Truncate(time.Second); d.Until.After(now) {
		d.Until = now // the hour that isn't over counts as far as it is known
	}
	return write(&p.Program, d, r.output)
}

// place is where controllers keep usage.
type place struct {
	stateDir   string
	url, fleet string // of a PostgreSQL database
}

// openToRead opens the database of controllers, on a server or in a folder.
func (p *program) openToRead(ctx context.Context, at *place) (*store.Store, error) {
	path, err := p.file(at)
	if err != nil {
		return nil, err
	}
	s, err := store.OpenToRead(ctx, cmp.Or(path, at.url), store.Options{Fleet: at.fleet, In: time.Local})
	switch {
	case err == nil:
		return s, nil
	case path != "":
		return nil, command.UsageError("%s: %w", path, err)
	case errors.Is(err, usage.ErrNone):
		return nil, command.UsageError("%w; --usage-fleet NAME names one", err)
	}
	return nil, fmt.Errorf("the usage database: %w", err)
}

// file is the path of the database; empty for one on a server, which has a right URL.
func (p *program) file(at *place) (path string, err error) {
	inFile := at.url == "" || at.url == on || at.url == off // as `enforce:` in config.yaml may say
	switch {
	case inFile && at.fleet != "":
		return "", command.UsageError("--usage-fleet is for --usage-db postgres://…")
	case inFile:
		return p.find(at.stateDir)
	}
	if err := store.CheckURL(at.url); err != nil {
		return "", command.UsageError("--usage-db: %w", err)
	}
	return "", nil
}

// find finds the database of a controller: in its folder, if that is given.
func (p *program) find(stateDir string) (path string, err error) {
	dirs := []string{stateDir}
	if stateDir == "" {
		dirs = enforcement.ControllerDirs(p.Getenv)
	}
	var found []string
	for _, dir := range dirs {
		path := filepath.Join(dir, store.FileName)
		switch _, err := os.Lstat(path); {
		case err == nil:
			found = append(found, path)
		case errors.Is(err, fs.ErrPermission):
			return "", command.UsageError("%w: %s", err, command.AskWithSudo)
		}
	}
	switch {
	case len(found) > 1:
		return "", command.UsageError("there are %s: name one of the folders with --state-dir DIR", strings.Join(found, " and "))
	case len(found) == 0 && len(dirs) == 0:
		return "", command.UsageError("no controller has run here: name its folder with --state-dir DIR")
	case len(found) == 0:
		return "", command.UsageError("there is no usage database in %s: `genv remote enforce` keeps one while it runs, unless --usage-db is off", strings.Join(dirs, " or "))
	}
	return found[0], checkOwner(found[0])
}

// flags are those of a report but for where usage is kept.
func flags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "since", Value: "7d", Usage: "from this `TIME` on, such as 7d or 2026-11-01"},
		&cli.StringFlag{Name: "until", DefaultText: "now", Usage: "until this `TIME`, such as 1d or 2026-12-01"},
		command.OneOf(&cli.StringFlag{Name: "by", Value: usage.ByUser, Usage: "`WHAT` the lines are: " + strings.Join(usage.Choices(), ", ")}, usage.Choices()),
		command.AtLeast(0, &cli.IntFlag{Name: "top", Usage: "only the first `N` lines; 0 for all"}),
	}, command.OutputFlags()...)
}

// request is what the flags say.
type request struct {
	query  usage.Query
	top    int
	output render.Output
	policy string
	place
}

// read reads the flags.
func (p *program) read(c *cli.Context) (r request, err error) {
	r.output, r.query.By, r.top, r.policy = command.ReadOutput(c), c.String("by"), c.Int("top"), c.String("policy")
	r.place = place{c.String("state-dir"), c.String("usage-db"), c.String("usage-fleet")}
	return r, p.readTime(c, &r)
}

func (p *program) readTime(c *cli.Context, r *request) error {
	from := c.String("since")
	since, err := p.Ago("since", from)
	if err != nil {
		return err
	}
	until, err := p.Ago("until", c.String("until"))
	if err != nil {
		return err
	}
	switch now := p.Now(); {
	case from == "":
		return command.UsageError("--since is empty: write how long ago, as 7d, or a time as 2026-11-20T22:00")
	case since.After(now):
		return command.UsageError("--since %s is in the future", since.Format(time.DateTime))
	}
	if until.IsZero() {
		until = p.Now()
	}
	if !until.After(since) {
		return command.UsageError("--since %s is not before --until %s", since.Format(time.DateTime), until.Format(time.DateTime))
	}
	r.query.Since, r.query.Until = since.Unix(), until.Unix()
	return nil
}

// checkOwner refuses the file of another user, even to root: SQLite would have to trust what
// that user wrote, and to write files next to it.
func checkOwner(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return command.UsageError("%s: %w", path, err)
	}
	if int(st.Uid) == unix.Geteuid() {
		return nil
	}
	owner := "#" + strconv.FormatUint(uint64(st.Uid), 10) // as sudo takes it
	if account, err := user.LookupId(owner[1:]); err == nil {
		owner = account.Username
	}
	return command.UsageError("%s belongs to %s: run this as that account: sudo -u %s genv remote …", path, owner, remote.Quote(owner))
}
