package hostreport

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/reporting"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/files"
	"github.com/seed-3119e985/genv/remote/usage/report"
)

// by are what a report of a host can be by.
func by() []string { return []string{report.ByUser, report.ByHost, report.ByModel, report.ByDay} }

// formats are those of a report of a host. genv has no html/template for another one.
func formats() []string { return []string{"tui", "csv", "json"} }

type program struct{ command.Program }

// Command is `genv report`.
func Command(with command.Program) *cli.Command {
	p := &program{with}
	return &cli.Command{
		Name:   "report",
		Usage:  "say how many GPU hours you had on this machine, day by day; to root, who had how many",
		Flags:  reporting.Flags(by(), formats()),
		Action: p.report,
	}
}

func (p *program) report(c *cli.Context) error {
	r, err := reporting.Read(c, &p.Program, by(), formats())
	if err != nil {
		return err
	}
	s, own, err := p.open()
	if err != nil {
		return err
	}
	defer s.Close()
	if own {
		if err := onlyOwn(c, &r); err != nil {
			return err
		}
	}
	sums, err := s.Report(c.Context, r.Query)
	if err != nil {
		return fmt.Errorf("the usage history: %w", err)
	}
	d := report.New(&sums, r.By, time.Local)
	for i := range d.Rows {
		if r.By == report.ByHost && d.Rows[i].Key == "" { // it has no name where it is alone
			d.Rows[i].Key = enforcelocal.Hostname()
		}
	}
	r.Finish(d, p.Now())
	return reporting.Write(&p.Program, d, r.Output)
}

// open opens what the user may see: all, or the own part.
func (p *program) open() (s *files.Store, own bool, err error) {
	path := folderOf(p.Getenv)
	if os.Geteuid() == 0 {
		s, err = files.OpenToRead(path, time.Local)
	} else {
		s, err = files.OpenOwn(path, uint32(os.Geteuid()), time.Local) //nolint:gosec // the kernel's uids fit
		own = true
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, own, command.UsageError("no usage history is kept on this machine. `genv enforce` keeps one while it runs here. Where a controller enforces this machine, " +
			"the history is with the controller: on its web page at /report, and from `genv remote report` there")
	case err != nil:
		return nil, own, command.UsageError("the usage history: %w", err)
	}
	return s, own, nil
}

// onlyOwn refuses what would be about others.
func onlyOwn(c *cli.Context, r *reporting.Request) error {
	switch {
	case r.FairShare:
		return command.UsageError("--fair-share: only root sees what others had on this machine")
	case !command.IsGiven(c, "by"):
		r.By, r.Query.ByDay, r.Query.Kind = report.ByDay, true, usage.OfAll
	case r.By != report.ByUser && r.By != report.ByDay:
		return command.UsageError("--by %s: only root sees what is used on this machine; your own is by day", r.By)
	}
	return nil
}
