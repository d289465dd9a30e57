// Package report has the command `genv remote report`, which says who used which GPUs over time,
// and the flags with which `genv remote enforce` keeps what it reads. It reads the
// folder of the controller or a server, and connects to no host and to no controller.
//
//	commands = append(commands, report.Command(program))
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// options is what the flags of `genv remote report` say.
type options struct {
	command.Program
	stateDir     string // where controllers keep usage
	url, fleet   string // of a PostgreSQL database
	output       render.Output
	since, until string
	by, policy   string
	cap          string // of GPU hours, whose running period is asked for
	top          int
}

// Command is `genv remote report`.
func Command(with command.Program) *cli.Command {
	p := &options{Program: with, since: "7d", by: usage.ByUser}
	return &cli.Command{
		Name:  "report",
		Usage: "say who used which GPUs over time: GPU hours, idle hours, findings",
		Flags: append([]cli.Flag{
			command.String(&p.since, "since", "from this `TIME` on, such as 7d or 2026-11-01"),
			command.String(&p.until, "until", "until this `TIME`, such as 1d or 2026-12-01").DefaultText("now"),
			command.String(&p.by, "by", "`WHAT` the lines are: "+strings.Join(usage.Choices(), ", ")).
				OneOf(usage.Choices()...),
			command.String(&p.cap, "cap", "who had how much of the cap `NAME` of GPU hours in its running period"),
			command.Int(&p.top, "top", "only the first `N` lines; 0 for all").AtLeast(0),
			command.String(&p.stateDir, "state-dir", "the `DIR` of the controller").
				Config(command.Shared).Unless("STATE_DIRECTORY").DefaultText("that of the service, or one's own"),
			command.String(&p.url, "usage-db", "the `URL` of the PostgreSQL database to which controllers write, "+
				"such as postgres://genv@db.lab/genv").Config(command.Shared).DefaultText("the file in --state-dir"),
			command.String(&p.fleet, "usage-fleet", "the `NAME` of the fleet in that database").
				Config(command.Shared).DefaultText("the only one there"),
			command.String(&p.policy, "policy", "take the groups of --by group from this policy `FILE`, or none; "+
				"by default policy.yaml in ~/.config/genv or /etc/genv").Config(command.Top | command.OrNone),
		}, command.OutputFlags(&p.output, html)...),
		Action: p.run,
	}
}

func (p *options) run(c *cli.Context) error {
	switch {
	case p.cap != "" && p.output.Format == html:
		return command.WrongFlag("format", " html is not for --cap: write tui, csv or json")
	case p.cap != "":
		return p.capReport(c.Context)
	}
	query, err := p.query()
	if err != nil {
		return err
	}
	var groups map[string][]string
	if query.By == usage.ByGroup {
		file, err := policyFile(p.policy)
		if err != nil {
			return err
		}
		groups = file.Groups
	}
	s, err := p.openToRead(c.Context)
	if err != nil {
		return err
	}
	defer s.Close()
	belongs := func(ctx context.Context, users []string) func(string) []string { return groupsOf(ctx, groups, users) }
	d, err := usage.Read(c.Context, s, query, belongs)
	if err != nil {
		return fmt.Errorf("the usage database: %w", err)
	}
	d.Top(p.top)
	if now := p.Now().Truncate(time.Second); d.Until.After(now) {
		d.Until = now // the hour that isn't over counts as far as it is known
	}
	return write(&p.Program, d, p.output)
}

// openToRead opens the database of controllers, on a server or in a folder.
func (p *options) openToRead(ctx context.Context) (*store.Store, error) {
	path, err := p.file()
	if err != nil {
		return nil, err
	}
	s, err := store.OpenToRead(ctx, cmp.Or(path, p.url), store.Options{Fleet: p.fleet, In: time.Local})
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
func (p *options) file() (path string, err error) {
	inFile := p.url == "" || p.url == on || p.url == off // as `enforce:` in config.yaml may say
	switch {
	case inFile && p.fleet != "":
		return "", command.WrongFlag("usage-fleet", " is for --usage-db postgres://…")
	case inFile:
		return p.find(store.FileName, "there is no usage database in %s: `genv remote enforce` keeps one while it runs, "+
			"unless --usage-db is off")
	}
	if err := store.CheckURL(p.url); err != nil {
		return "", command.WrongFlag("usage-db", ": %w", err)
	}
	return "", nil
}

// find finds a file in the folder of the only controller that has it; missing says that there is none in the folders.
func (p *options) find(name, missing string) (path string, err error) {
	dirs := []string{p.stateDir}
	if p.stateDir == "" {
		dirs = enforcement.ControllerDirs(p.Getenv)
	}
	var found []string
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		switch _, err := os.Lstat(path); {
		case err == nil:
			found = append(found, path)
		case errors.Is(err, fs.ErrPermission):
			return "", command.UsageError("%w: %s", err, command.AskWithSudo)
		}
	}
	switch {
	case len(found) > 1:
		return "", command.UsageError("there are %s: name one of the folders with --state-dir DIR",
			strings.Join(found, " and "))
	case len(found) == 0 && len(dirs) == 0:
		return "", command.UsageError("no controller has run here: name its folder with --state-dir DIR")
	case len(found) == 0:
		return "", command.UsageError(missing, strings.Join(dirs, " or "))
	}
	return found[0], checkOwner(found[0])
}

func (p *options) query() (q usage.Query, err error) {
	since, until, err := p.Period(p.since, p.until)
	if err != nil {
		return q, err
	}
	switch now := p.Now(); {
	case p.since == "":
		return q, command.WrongFlag("since", " is empty: write how long ago, as 7d, or a time as 2026-11-20T22:00")
	case since.After(now):
		return q, command.WrongFlag("since", " %s is in the future", since.Format(time.DateTime))
	case until.IsZero():
		until = now
	}
	return usage.Query{By: p.by, Since: since.Unix(), Until: until.Unix(), Days: p.output.Format == html}, nil
}

// checkOwner refuses the file of another user, even to root: SQLite would have to trust what that user wrote, and to
// write files next to it.
func checkOwner(path string) error {
	owner, err := command.OtherOwner(path)
	if err != nil {
		return command.UsageError("%w", err)
	}
	if owner == "" {
		return nil
	}
	return command.UsageError("%s belongs to %s: run this as that account: sudo -u %s genv remote …", path, owner,
		remote.Quote(owner))
}
