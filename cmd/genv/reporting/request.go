package reporting

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/report"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// Flags are those of a report. by is what it can be by, the default first.
func Flags(by, formats []string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "since", Value: "7d", Usage: "from this `TIME` on, such as 7d or 2026-11-01"},
		&cli.StringFlag{Name: "until", DefaultText: "now", Usage: "until this `TIME`, such as 1d or 2026-12-01"},
		command.OneOf(&cli.StringFlag{Name: "by", Value: by[0], Usage: "`WHAT` the lines are: " + strings.Join(by, ", ")}, by),
		&cli.BoolFlag{Name: "fair-share", Usage: "compare each user with an equal share; of the last 30 days unless --since says otherwise"},
		&cli.IntFlag{Name: "top", Usage: "only the first `N` lines; 0 for all"},
		command.FormatFlag(formats...),
		&cli.BoolFlag{Name: "no-header", Usage: "leave out the names of the columns"},
	}
}

// Request is what the flags say.
type Request struct {
	Query     store.Query
	By        string
	FairShare bool
	Top       int
	Output    render.Output
}

// Read reads Flags.
func Read(c *cli.Context, p *command.Program, by, formats []string) (r Request, err error) {
	if r.Output.Format, err = command.FormatOf(c, formats...); err != nil {
		return r, err
	}
	r.Output.NoHeader, r.By, r.Top, r.FairShare = c.Bool("no-header"), c.String("by"), c.Int("top"), c.Bool("fair-share")
	if r.Top < 0 {
		return r, command.UsageError("--top %d: write 0 or more", r.Top)
	}
	if err := command.CheckChoices("by", []string{r.By}, by); err != nil {
		return r, err
	}
	switch r.By {
	case report.ByUser, report.ByGroup:
		r.Query.Kind = usage.ByUser
	case report.ByHost:
		r.Query.Kind = usage.ByHost
	case report.ByModel:
		r.Query.Kind = usage.ByModel
	case report.ByDay:
		r.Query.Kind, r.Query.ByDay = usage.OfAll, true
	}
	if r.FairShare && r.By != report.ByUser {
		return r, command.UsageError("--fair-share is by user: leave out --by %s", r.By)
	}
	return r, r.readTime(c, p)
}

func (r *Request) readTime(c *cli.Context, p *command.Program) error {
	from := c.String("since")
	if r.FairShare && !command.IsGiven(c, "since") {
		from = fmt.Sprintf("%dd", report.FairShareDays)
	}
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
	r.Query.Since, r.Query.Until = since.Unix(), until.Unix()
	return nil
}

// Finish does to a document what the request asks for besides its query. The hour that isn't over
// counts as far as it is known.
func (r *Request) Finish(d *report.Document, now time.Time) {
	if r.FairShare {
		d.CompareWithEqual()
	}
	d.Top(r.Top)
	if now = now.Truncate(time.Second); d.Until.After(now) {
		d.Until = now
	}
}
