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
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/usage"
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
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "since", Value: "7d", Usage: "from this `TIME` on, such as 7d or 2026-11-01"},
			&cli.StringFlag{Name: "until", DefaultText: "now", Usage: "until this `TIME`, such as 1d or 2026-12-01"},
			command.OneOf(&cli.StringFlag{Name: "by", Value: report.ByUser, Usage: "`WHAT` the lines are: " + strings.Join(by(), ", ")}, by()),
			&cli.BoolFlag{Name: "fair-share", Usage: "compare each user with an equal share; of the last 30 days unless --since says otherwise"},
			&cli.IntFlag{Name: "top", Usage: "only the first `N` lines; 0 for all"},
			&cli.StringFlag{Name: "state-dir", DefaultText: "that of the service, or one's own", Usage: "the `DIR` of the controller"},
			&cli.StringFlag{Name: "policy", Usage: "take the groups of --by group from this policy `FILE`, or none; by default policy.yaml in ~/.config/genv or /etc/genv"},
			command.FormatFlag(formats()...),
			&cli.BoolFlag{Name: "no-header", Usage: "leave out the names of the columns"},
		},
		Action: p.report,
	}
}

// request is what the flags say.
type request struct {
	query    store.Query
	by       string
	fair     bool
	top      int
	policy   string
	output   render.Output
	stateDir string
}

func (p *program) read(c *cli.Context) (r request, err error) {
	if r.output.Format, err = command.FormatOf(c, formats()...); err != nil {
		return r, err
	}
	r.output.NoHeader, r.by, r.top, r.policy = c.Bool("no-header"), c.String("by"), c.Int("top"), c.String("policy")
	if r.top < 0 {
		return r, command.UsageError("--top %d: write 0 or more", r.top)
	}
	switch r.by {
	case report.ByUser, report.ByGroup:
		r.query.Kind = usage.ByUser
	case report.ByHost:
		r.query.Kind = usage.ByHost
	case report.ByModel:
		r.query.Kind = usage.ByModel
	case report.ByDay:
		r.query.Kind, r.query.ByDay = usage.OfAll, true
	default:
		return r, command.CheckChoices("by", []string{r.by}, by())
	}
	from := c.String("since")
	if r.fair = c.Bool("fair-share"); r.fair {
		if r.by != report.ByUser {
			return r, command.UsageError("--fair-share is by user: leave out --by %s", r.by)
		}
		if !command.IsGiven(c, "since") {
			from = fmt.Sprintf("%dd", report.FairShareDays)
		}
	}
	since, err := p.Since(from)
	if err != nil {
		return r, err
	}
	until, err := p.Since(c.String("until"))
	if err != nil {
		return r, command.UsageError("--until: %w", err)
	}
	if until.IsZero() {
		until = p.Now()
	}
	r.query.Since, r.query.Until = since.Unix(), until.Unix()
	if !until.After(since) {
		return r, command.UsageError("--since %s is not before --until %s", since.Format(time.DateTime), until.Format(time.DateTime))
	}
	r.stateDir = c.String("state-dir")
	return r, nil
}

func (p *program) report(c *cli.Context) error {
	r, err := p.read(c)
	if err != nil {
		return err
	}
	s, err := p.open(&r)
	if err != nil {
		return err
	}
	defer s.Close()
	d, err := p.document(c.Context, s, &r)
	if err != nil {
		return err
	}
	if r.fair {
		d.CompareWithEqual()
	}
	d.Top(r.top)
	if now := p.Now().Truncate(time.Second); d.Until.After(now) {
		d.Until = now // the hour that isn't over counts as far as it is known
	}
	switch r.output.Format {
	case "json":
		return render.WriteJSON(p.Out, d)
	case "csv":
		return writeCSV(p.Out, d, r.output)
	case "html":
		days, err := p.days(c.Context, s, &r)
		if err != nil {
			return err
		}
		return charts.WritePage(p.Out, d, days)
	}
	return p.writeText(d, r.output)
}

// open opens the database of a controller.
func (p *program) open(r *request) (*sqlite.Store, error) {
	dirs := []string{r.stateDir}
	if r.stateDir == "" {
		dirs = enforcement.ControllerDirs(p.Getenv)
	}
	var found []string
	for _, dir := range dirs {
		path := filepath.Join(dir, sqlite.FileName)
		switch _, err := os.Lstat(path); {
		case err == nil:
			found = append(found, path)
		case errors.Is(err, fs.ErrPermission):
			return nil, command.UsageError("%w: run this as root or as the controller's account: sudo -u genv genv remote report …", err)
		}
	}
	switch {
	case len(found) > 1:
		return nil, command.UsageError("there are %s: name one of the folders with --state-dir DIR", strings.Join(found, " and "))
	case len(found) == 0 && len(dirs) == 0:
		return nil, command.UsageError("no controller has run here: name its folder with --state-dir DIR")
	case len(found) == 0:
		return nil, command.UsageError("there is no usage history in %s: `genv remote enforce` keeps one while it runs, unless --history is off", strings.Join(dirs, " or "))
	}
	if err := checkOwner(found[0]); err != nil {
		return nil, err
	}
	s, err := sqlite.OpenToRead(found[0], time.Local)
	if err != nil {
		return nil, command.UsageError("%s: %w", found[0], err)
	}
	return s, nil
}

func (p *program) document(ctx context.Context, s store.Store, r *request) (*report.Document, error) {
	sums, err := s.Report(ctx, r.query)
	if err != nil {
		return nil, fmt.Errorf("the usage history: %w", err)
	}
	if r.by != report.ByGroup {
		return report.New(&sums, r.by, time.Local), nil
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
	if r.by == report.ByDay {
		return nil, nil //nolint:nilnil // the report itself is that
	}
	q := r.query
	q.Kind, q.ByDay = usage.OfAll, true
	sums, err := s.Report(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("the usage history: %w", err)
	}
	return report.New(&sums, report.ByDay, time.Local), nil
}
