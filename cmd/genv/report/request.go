package report

import (
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/report"
)

// flags are those of a report but for where usage is kept.
func flags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "since", Value: "7d", Usage: "from this `TIME` on, such as 7d or 2026-11-01"},
		&cli.StringFlag{Name: "until", DefaultText: "now", Usage: "until this `TIME`, such as 1d or 2026-12-01"},
		command.OneOf(&cli.StringFlag{Name: "by", Value: by()[0], Usage: "`WHAT` the lines are: " + strings.Join(by(), ", ")}, by()),
		&cli.IntFlag{Name: "top", Usage: "only the first `N` lines; 0 for all"},
	}, command.OutputFlags()...)
}

// request is what the flags say.
type request struct {
	query  usage.Query
	by     string
	top    int
	output render.Output
	policy string
	place
}

// read reads the flags.
func (p *program) read(c *cli.Context) (r request, err error) {
	if command.String(c, "format") == "html" {
		return r, command.UsageError("--format html was removed: write tui, csv or json; the controller's page has charts under /report")
	}
	if r.output, err = command.ReadOutput(c); err != nil {
		return r, err
	}
	r.by, r.top = c.String("by"), c.Int("top")
	r.policy, r.place = c.String("policy"), placeOf(c)
	if r.top < 0 {
		return r, command.UsageError("--top %d: write 0 or more", r.top)
	}
	if err := command.CheckChoices("by", []string{r.by}, by()); err != nil {
		return r, err
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
	}
	return r, p.readTime(c, &r)
}

func placeOf(c *cli.Context) place {
	return place{c.String("state-dir"), c.String("history"), c.String("history-fleet")}
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

// finish does to a document what the request asks for besides its query. The hour that isn't over
// counts as far as it is known.
func (r *request) finish(d *report.Document, now time.Time) {
	d.Top(r.top)
	if now = now.Truncate(time.Second); d.Until.After(now) {
		d.Until = now
	}
}
