package report

import (
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
	"github.com/seed-3119e985/genv/cmd/genv/reporting"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/postgres"
	"github.com/seed-3119e985/genv/remote/usage/report"
	"github.com/seed-3119e985/genv/remote/usage/report/charts"
	"github.com/seed-3119e985/genv/remote/usage/sqlite"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// program is genv as this command sees it.
type program struct{ command.Program }

// by are what a report can be by.
func by() []string {
	return []string{report.ByUser, report.ByGroup, report.ByHost, report.ByModel, report.ByDay}
}

// formats are those of a report.
func formats() []string { return []string{"tui", "csv", "json", "html"} }

// Command is `genv remote report`.
func Command(with command.Program) *cli.Command {
	p := &program{with}
	return &cli.Command{
		Name:  "report",
		Usage: "say who used which GPUs over time: GPU hours, idle hours, findings",
		Flags: append(reporting.Flags(by(), formats()),
			&cli.StringFlag{Name: "state-dir", DefaultText: "that of the service, or one's own", Usage: "the `DIR` of the controller"},
			&cli.StringFlag{Name: "history", DefaultText: "the file in --state-dir", Usage: "the `URL` of the PostgreSQL database to which controllers write, such as postgres://genv@db.lab/genv"},
			&cli.StringFlag{Name: "history-fleet", DefaultText: "the only one there", Usage: "the `NAME` of the fleet in that database"},
			&cli.StringFlag{Name: "policy", Usage: "take the groups of --by group from this policy `FILE`, or none; by default policy.yaml in ~/.config/genv or /etc/genv"},
		),
		Action: p.report,
	}
}

// request is what the flags say.
type request struct {
	reporting.Request
	policy, stateDir string
	url, fleet       string // of a PostgreSQL database
}

func (p *program) report(c *cli.Context) error {
	common, err := reporting.Read(c, &p.Program, by(), formats())
	if err != nil {
		return err
	}
	r := request{common, c.String("policy"), c.String("state-dir"), c.String("history"), c.String("history-fleet")}
	s, err := p.openToRead(c.Context, &r)
	if err != nil {
		return err
	}
	defer s.Close()
	d, err := p.document(c.Context, s, &r)
	if err != nil {
		return err
	}
	r.Finish(d, p.Now())
	if r.Output.Format == "html" {
		days, err := p.days(c.Context, s, &r)
		if err != nil {
			return err
		}
		return charts.WritePage(p.Out, d, days)
	}
	return reporting.Write(&p.Program, d, r.Output)
}

// openToRead opens the database of controllers, on a server or in a folder.
func (p *program) openToRead(ctx context.Context, r *request) (store.Store, error) {
	inFile, err := r.inFile()
	if err != nil {
		return nil, err
	}
	if inFile {
		return p.openFile(r)
	}
	return openServer(ctx, r)
}

// inFile says whether the database is a file in the folder of a controller.
func (r *request) inFile() (bool, error) {
	inFile := r.url == "" || r.url == on || r.url == off // as `enforce:` in config.yaml may say
	if inFile && r.fleet != "" {
		return false, command.UsageError("--history-fleet is for --history postgres://…")
	}
	return inFile, nil
}

// openServer opens a database on a server to read it.
func openServer(ctx context.Context, r *request) (*postgres.Store, error) {
	if err := postgres.Check(r.url); err != nil {
		return nil, command.UsageError("--history: %w", err)
	}
	s, err := postgres.OpenToRead(ctx, r.url, postgres.Options{Fleet: r.fleet, In: time.Local})
	if errors.Is(err, store.ErrNone) {
		return nil, command.UsageError("%w; --history-fleet NAME names one", err)
	}
	if err != nil {
		return nil, fmt.Errorf("the usage history: %w", err)
	}
	return s, nil
}

// openFile opens the database of a controller in its folder.
func (p *program) openFile(r *request) (store.Store, error) {
	path, err := p.find(r.stateDir)
	if err != nil {
		return nil, err
	}
	s, err := sqlite.OpenToRead(path, time.Local)
	if err != nil {
		return nil, command.UsageError("%s: %w", path, err)
	}
	return s, nil
}

// find finds the database of a controller: in its folder, if that is given.
func (p *program) find(stateDir string) (path string, err error) {
	dirs := []string{stateDir}
	if stateDir == "" {
		dirs = enforcement.ControllerDirs(p.Getenv)
	}
	var found []string
	for _, dir := range dirs {
		path := filepath.Join(dir, sqlite.FileName)
		switch _, err := os.Lstat(path); {
		case err == nil:
			found = append(found, path)
		case errors.Is(err, fs.ErrPermission):
			return "", command.UsageError("%w: run this as root or as the controller's account: sudo -u genv genv remote …", err)
		}
	}
	switch {
	case len(found) > 1:
		return "", command.UsageError("there are %s: name one of the folders with --state-dir DIR", strings.Join(found, " and "))
	case len(found) == 0 && len(dirs) == 0:
		return "", command.UsageError("no controller has run here: name its folder with --state-dir DIR")
	case len(found) == 0:
		return "", command.UsageError("there is no usage history in %s: `genv remote enforce` keeps one while it runs, unless --history is off", strings.Join(dirs, " or "))
	}
	return found[0], checkOwner(found[0])
}

func (p *program) document(ctx context.Context, s store.Store, r *request) (*report.Document, error) {
	sums, err := s.Report(ctx, r.Query)
	if err != nil {
		return nil, fmt.Errorf("the usage history: %w", err)
	}
	if r.By != report.ByGroup {
		return report.New(&sums, r.By, time.Local), nil
	}
	d := report.New(&sums, report.ByUser, time.Local)
	groups, err := p.groups(ctx, r.policy, d.Keys())
	if err != nil {
		return nil, err
	}
	d.Groups(groups)
	return d, nil
}

// days is the same time by day.
func (p *program) days(ctx context.Context, s store.Store, r *request) (*report.Document, error) {
	if r.By == report.ByDay {
		return nil, nil //nolint:nilnil // the report itself is that
	}
	q := r.Query
	q.Kind, q.ByDay = usage.OfAll, true
	sums, err := s.Report(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("the usage history: %w", err)
	}
	return report.New(&sums, report.ByDay, time.Local), nil
}
