package report

import (
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/usage/report"
)

// flags are those of a report but for where usage is kept.
func flags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "since", Value: "7d", Usage: "from this `TIME` on, such as 7d or 2026-11-01"},
		&cli.StringFlag{Name: "until", DefaultText: "now", Usage: "until this `TIME`, such as 1d or 2026-12-01"},
		command.OneOf(&cli.StringFlag{Name: "by", Value: report.ByUser, Usage: "`WHAT` the lines are: " + strings.Join(report.Choices(), ", ")}, report.Choices()),
		&cli.IntFlag{Name: "top", Usage: "only the first `N` lines; 0 for all"},
	}, command.OutputFlags()...)
}

// request is what the flags say.
type request struct {
	query  report.Query
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
	r.query.By, r.top = c.String("by"), c.Int("top")
	r.policy, r.place = c.String("policy"), placeOf(c)
	if r.top < 0 {
		return r, command.UsageError("--top %d: write 0 or more", r.top)
	}
	if err := command.CheckChoices("by", []string{r.query.By}, report.Choices()); err != nil {
		return r, err
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
