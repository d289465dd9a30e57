// Package report has `genv remote report`, which prints who used which GPUs, and the flags of `genv remote enforce` for
// recording that. It reads the controller's folder or a server, and connects to no host.
//
//	commands = append(commands, report.Command(program))
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

type options struct {
	command.Program
	stateDir     string // of controllers
	url, fleet   string // of a PostgreSQL database
	output       render.Output
	since, until string
	by, policy   string
	cap          string // of GPU hours: show its running period
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
				"by default policy.yaml in ~/.config/genv or /etc/genv").Config(command.Top | command.Shared | command.OrNone),
		}, command.OutputFlags(&p.output, html)...),
		Action: p.run,
	}
}

func (p *options) run(c *cli.Context) error {
	switch {
	case p.cap != "" && (c.IsSet("by") || c.IsSet("since") || c.IsSet("until") || c.IsSet("top")):
		return command.WrongFlag("cap", " shows all of its running period: leave out --by, --since, --until and --top")
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
	s, err := p.openToRead(c.Context, store.FileName, "there is no usage database in %s: `genv remote enforce` keeps "+
		"one while it runs, unless --usage-db is off")
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
		d.Until = now // the present hour isn't complete
	}
	return write(&p.Program, d, p.output)
}

// openToRead opens the server or the named file; missing is the message if there is no file.
func (p *options) openToRead(ctx context.Context, name, missing string) (*store.Store, error) {
	path, err := p.file(name, missing)
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

// file is the path of the database; empty for a server, after a check of its URL.
func (p *options) file(name, missing string) (path string, err error) {
	inFile := p.url == "" || p.url == on || p.url == off // `enforce:` in config.yaml may set these
	switch {
	case inFile && p.fleet != "":
		return "", command.WrongFlag("usage-fleet", " is for --usage-db postgres://…")
	case inFile:
		return p.find(name, missing)
	}
	if err := store.CheckURL(p.url); err != nil {
		return "", command.WrongFlag("usage-db", ": %w", err)
	}
	return "", nil
}

// find returns the only controller's file; missing is the message for none.
func (p *options) find(name, missing string) (path string, err error) {
	dirs := enforcement.ControllerDirs(p.Getenv, p.stateDir)
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

// checkOwner refuses another user's file, even for root: SQLite would trust it, and write files next to it.
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

const html = "html"

func write(p *command.Program, d *usage.Report, output render.Output) error {
	switch output.Format {
	case "json":
		return render.WriteJSON(p.Out, d)
	case "csv":
		return writeCSV(p.Out, d, output)
	case html:
		return web.WriteReport(p.Out, d)
	}
	return writeText(p, d, output)
}

func writeCSV(w io.Writer, d *usage.Report, output render.Output) error {
	t := output.Table("key", "attached_seconds", "used_seconds", "computing_seconds", "idle_seconds", "unknown_seconds",
		"unmeasured_seconds", "memory_mib_seconds", "share", "peak_devices", "findings", "terminated", "detached")
	for i := range d.Rows {
		r := &d.Rows[i]
		cells := []any{
			r.Key, r.Attached, r.Used, r.Computing, r.Idle, r.Unknown, r.Unmeasured, r.Memory,
			fmt.Sprintf("%.4f", r.Share), ifKnown(r.Peak), r.Findings, r.Terminated, r.Detached,
		}
		row := make([]string, len(cells))
		for j, cell := range cells {
			row[j] = fmt.Sprint(cell)
		}
		t.Add(row...)
	}
	return t.Write(w)
}

func ifKnown(number *int64) string {
	if number == nil {
		return ""
	}
	return fmt.Sprint(*number)
}

func writeText(p *command.Program, d *usage.Report, output render.Output) error {
	if len(d.Rows) == 0 {
		fmt.Fprintf(p.Err, "No usage is recorded from %s to %s.\n", d.Since.Format(shortTime),
			d.Until.Format(shortTime))
	} else if _, err := io.WriteString(p.Out, table(d, output, render.Width(p.Out))); err != nil {
		return err
	}
	writeSummary(p.Err, d)
	return nil
}

const shortTime = "2006-01-02 15:04"

func writeSummary(w io.Writer, d *usage.Report) {
	t := &d.Total
	fmt.Fprintf(w, "%s to %s: %s GPU hours attached, %s used, %s idle, peak %s.", d.Since.Format(shortTime),
		d.Until.Format(shortTime), usage.Hours(t.Attached), usage.Hours(t.Used), usage.Hours(t.Idle),
		text.Plural(int(*t.Peak), "GPU"))
	if d.LeftOut > 0 {
		fmt.Fprintf(w, " %s left out.", text.Plural(d.LeftOut, "line"))
	}
	fmt.Fprintln(w)
	if d.Begun.After(d.Since) && d.Begun.Unix() > 0 {
		fmt.Fprintf(w, "Usage is kept since %s.\n", d.Begun.Format(shortTime))
	}
	if d.Missing > 0 {
		fmt.Fprintf(w, "What was used in %s of this time is unknown: no controller ran, or nothing could be saved.\n",
			usage.ShortTime(d.Missing))
	}
}

func keyOf(by, key string) string {
	if by == usage.ByUser && key != "" && key != string(usage.Other) {
		return gpus.ShownUser(snapshot.Username(key))
	}
	return text.PrintableLines(usage.Shown(by, key))
}

// table is text with as many columns as fit into a width; all with 0.
func table(d *usage.Report, output render.Output, width int) string {
	t := draw.Table{Rows: make([]draw.TableRow, len(d.Rows))}
	names := strings.ToUpper(d.By) + " ATTACHED SHARE USED COMPUTING IDLE UNKNOWN PEAK FINDINGS ENDED DETACHED"
	order := []int{0, 0, 6, 7, 3, 8, 2, 4, 5, 1, 1} // of leaving out on a narrow terminal; 0 for never
	for i, name := range strings.Fields(names) {
		if output.NoHeader {
			name = ""
		}
		t.Columns = append(t.Columns, draw.ColumnLayout{Name: name, Right: i > 0, Order: order[i]})
	}
	for i := range d.Rows {
		r := &d.Rows[i]
		for _, value := range []string{
			keyOf(d.By, r.Key), usage.Hours(r.Attached), usage.Percent(r.Share), usage.Hours(r.Used),
			usage.Hours(r.Computing), usage.Hours(r.Idle), usage.Hours(r.Unknown), ifKnown(r.Peak),
			fmt.Sprint(r.Findings), fmt.Sprint(r.Terminated), fmt.Sprint(r.Detached),
		} {
			t.Rows[i].Cells = append(t.Rows[i].Cells, draw.Text(value))
		}
	}
	t.Columns[0].Least = 32 // characters of a key
	t.Fit(width)
	var b strings.Builder
	t.Write(&b, !output.NoHeader)
	return b.String()
}
