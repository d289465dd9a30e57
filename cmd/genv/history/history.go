// Package history shows the audit log of a host or a controller: what was done to which user, when and why.
package history

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Options are the flags that select from a log.
type Options struct {
	output       render.Output
	filter       audit.Filter
	pid          int
	since, until string
	auditLog     string
	host         []string
	stats        bool
	verbose      bool
}

// Flags select from the log of a host.
func (o *Options) Flags() []cli.Flag {
	return append([]cli.Flag{
		command.String(&o.filter.User, "user", "only actions on this `USER`, by name or uid"),
		command.Int(&o.pid, "pid", "only actions on process `PID`").DefaultText("any"),
		command.String(&o.filter.Rule, "rule", "only actions because of this `RULE`, such as idle").
			OneOf(enforce.RuleNames()...),
		command.String(&o.since, "since", "only actions since `TIME`, such as 2h, 7d or 2026-11-20T22:00"),
		command.String(&o.until, "until", "only actions before `TIME`, such as 1d or 2026-12-01"),
		command.Bool(&o.filter.Notices, "notices",
			"also list which notices users and hooks got, and where, and what a dry run would have done"),
	}, command.OutputFlags(&o.output)...)
}

// Show prints the selected entries of a log; with a host only those about it.
func (o *Options) Show(p *command.Program, c *cli.Context, path string, host snapshot.Hostname) error {
	if o.pid < 0 {
		return command.WrongFlag("pid", " %d: write the number of a process", o.pid)
	}
	q, err := o.filter, error(nil)
	if q.Since, q.Until, err = p.Period(o.since, o.until); err != nil {
		return err
	}
	id, err := readID(c)
	if err != nil {
		return err
	}
	if id != "" && o.stats {
		return command.WrongFlag("stats", " can't be used with the id of a decision")
	}
	q.PID, q.Host, q.Notices = snapshot.PID(o.pid), host, q.Notices || o.stats || id != ""
	entries, err := read(p, path, q)
	if err != nil {
		return err
	}
	if id != "" {
		return writeDecisions(p, o.output, path, id, audit.Decided(entries, id), (*audit.HistoryEntry).Lines)
	}
	if len(entries) == 0 && o.output.Format == "tui" && !o.output.NoHeader {
		fmt.Fprintf(p.Err, "No action to show in %s\n", path)
		return nil
	}
	if o.stats {
		return writeStats(p, o.output, audit.Sum(entries))
	}
	if o.output.Format == "json" {
		return render.WriteJSON(p.Out, EntriesDocument{Schema: "genv.history/1", Entries: entries})
	}
	return table(o.output, entries).Write(p.Out)
}

func read(p *command.Program, path string, q audit.Filter) ([]audit.HistoryEntry, error) {
	entries, damage, err := audit.History(path, q)
	if damage.Lines > 0 {
		fmt.Fprintf(p.Err, "%s: skipped %s that can't be read, the first at %s\n", path,
			text.Plural(damage.Lines, "line"), damage.First)
	}
	if errors.Is(err, fs.ErrPermission) {
		err = command.UsageError("%w: ask your administrator, who can run genv history --user %d as root", err,
			os.Getuid())
	}
	return entries, err
}

// EntriesDocument is the JSON of `history`.
type EntriesDocument struct {
	Schema  string               `json:"schema"`
	Entries []audit.HistoryEntry `json:"entries"`
}

// table has the id of a decision before its reason, but last in CSV, which got it later.
func table(output render.Output, entries []audit.HistoryEntry) *render.Table {
	columns := []string{"TIME:21", "HOST:12", "USER:10", "WHAT:24", "STATUS:12", "ID:10", "WHY"}
	last := len(columns) - 1
	if output.Format == "csv" {
		columns[last], columns[last-1] = columns[last-1], columns[last]
	}
	t := output.Table(columns...)
	for i := range entries {
		e := &entries[i]
		row := []string{
			e.Time.Local().Format(time.DateTime), string(e.Host), string(e.UserOrUID()), whatOf(e),
			string(e.Status), e.ID, whyOf(e),
		}
		if output.Format == "csv" {
			row[last], row[last-1] = row[last-1], row[last]
		}
		t.Add(row...)
	}
	return t
}

func whatOf(e *audit.HistoryEntry) string {
	switch {
	case e.Action == audit.ActionNotice:
		return strings.TrimSpace(fmt.Sprintf("%s %s", e.Channel, e.To))
	case e.Action != "":
		return e.Action
	case e.Device != nil:
		return fmt.Sprintf("GPU %s of %s", e.Device, text.Shown(string(e.EID)))
	}
	return fmt.Sprintf("process %d", e.PID)
}

func whyOf(e *audit.HistoryEntry) string {
	why := strings.Join(e.Why, "; ")
	if !strings.Contains(why, e.Container) { // as for a cap
		why += " (" + e.Container + ")"
	}
	if e.Reason != "" && e.Status != order.StatusTerminated {
		why += " (" + e.Reason + ")"
	}
	if !e.Notified.IsZero() {
		why += " (notified at " + e.Notified.Local().Format(time.TimeOnly) + ")"
	}
	return strings.TrimSpace(why)
}

// ControllerFlags select from the log of a controller.
func (o *Options) ControllerFlags() []cli.Flag {
	return append(o.Flags(),
		command.String(&o.auditLog, "audit-log", "the log `FILE` ($GENV_AUDIT_LOG)").
			Config(command.Top|command.Shared).Unless("GENV_AUDIT_LOG"),
		command.Strings(&o.host, "host,H", "only actions on this `HOST`"),
		command.Bool(&o.stats, "stats",
			"print how many warnings, actions, exemptions and failures there were, by user and rule"),
	)
}

// ShowController prints selected entries of a controller's log. It connects to no host.
func (o *Options) ShowController(p *command.Program, c *cli.Context) error {
	path := cmp.Or(o.auditLog, p.Getenv("GENV_AUDIT_LOG"))
	const another = "name the log of `genv remote enforce --audit-log FILE`"
	if path == "" || path == "off" {
		return command.UsageError("missing --audit-log FILE, or GENV_AUDIT_LOG: %s", another)
	}
	switch _, err := os.Stat(path); { // an empty answer would mean that nothing was done
	case errors.Is(err, fs.ErrNotExist):
		return command.UsageError("the log: %w; if no controller has run yet, start it, otherwise %s", err, another)
	case errors.Is(err, fs.ErrPermission):
		return command.UsageError("the log: %w; %s, or as a member of the group %s", err, command.AskWithSudo,
			socket.Group)
	case err != nil:
		return command.UsageError("the log: %w; %s", err, another)
	}
	if err := unix.Access(path, unix.R_OK); err != nil { // such as the log of root's dry run
		return command.UsageError("the log %s: %w; %s", path, err, command.AskWithSudo)
	}
	if len(o.host) > 1 {
		return command.WrongFlag("host", ": name one host, or none for all")
	}
	return o.Show(p, c, path, snapshot.Hostname(strings.Join(o.host, "")))
}

// StatsDocument is the JSON of `remote history --stats`.
type StatsDocument struct {
	Schema string `json:"schema"`
	audit.Stats
}

func writeStats(p *command.Program, output render.Output, s audit.Stats) error {
	if output.Format == "json" {
		return render.WriteJSON(p.Out, StatsDocument{Schema: "genv.history.stats/1", Stats: s})
	}
	columns := []string{
		"USER:10", "RULE:22", "WARNED:8", "TERMINATED:12", "DETACHED:10", "EXEMPTED:10", "REFUSED:9", "FAILED:8",
	}
	if dryRun := s.Total.WouldTerminate+s.Total.WouldDetach > 0; dryRun || output.Format == "csv" {
		columns = append(columns, "WOULD-TERMINATE:17", "WOULD-DETACH")
	}
	t := output.Table(columns...)
	add := func(user, rule string, c audit.ActionCounts) {
		row := []string{user, rule}
		for _, n := range []int{
			c.Warned, c.Terminated, c.Detached, c.Exempted, c.Refused, c.Failed, c.WouldTerminate, c.WouldDetach,
		} {
			row = append(row, strconv.Itoa(n))
		}
		t.Add(row[:len(columns)]...)
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		user, rule := string(r.User), string(r.Rule)
		if output.Format == "tui" {
			user, rule = cmp.Or(output.Name(user), "-"), cmp.Or(rule, "-")
		}
		add(user, rule, r.ActionCounts)
	}
	if output.Format == "tui" && len(s.Rows) > 1 {
		add("(all)", "(all)", s.Total)
	}
	return t.Write(p.Out)
}

// Why explains the decision of the argument, or a pending warning, or the last action.
func (o *Options) Why(p *command.Program, c *cli.Context, path string) error {
	id, err := readID(c)
	if err != nil {
		return err
	}
	entries, err := read(p, path, audit.Filter{Notices: true})
	if err != nil {
		return err
	}
	lines := func(e *audit.HistoryEntry) []string { return e.Answer(p.Now()) }
	if o.verbose {
		lines = (*audit.HistoryEntry).Lines
	}
	found := audit.Latest(entries, p.Now())
	if id != "" {
		found = audit.Decided(entries, id)
	}
	return writeDecisions(p, o.output, path, id, found, lines)
}

// WhyFlags are the flags of Why.
func (o *Options) WhyFlags() []cli.Flag {
	return append(command.OutputFlags(&o.output), command.Bool(&o.verbose, "verbose,v",
		"print all that is recorded, with the process and the GPU as they were when they were judged"))
}

func readID(c *cli.Context) (string, error) {
	if c.Args().Len() > 1 {
		return "", command.UsageError("unexpected argument %q: name one decision", c.Args().Get(1))
	}
	id := strings.ToLower(c.Args().First())
	if id != "" && !audit.IsDecisionID(id) {
		return "", command.UsageError("%q is not the id of a decision: it has 8 hexadecimal digits, as in the column "+
			"ID of the history", c.Args().First())
	}
	return id, nil
}

func writeDecisions(
	p *command.Program, output render.Output, path, id string, entries []audit.HistoryEntry,
	lines func(*audit.HistoryEntry) []string,
) error {
	switch {
	case len(entries) == 0 && id != "":
		return command.UsageError("no decision %s is recorded in %s: the history lists those that are", id, path)
	case output.Format == "json":
		entries = append([]audit.HistoryEntry{}, entries...) // an empty list, not null
		return render.WriteJSON(p.Out, EntriesDocument{Schema: "genv.history/1", Entries: entries})
	case output.Format == "csv":
		return table(output, entries).Write(p.Out)
	case len(entries) == 0:
		fmt.Fprintf(p.Err, "No action on this host is recorded in %s, and no warning runs here\n", path)
	}
	for i := range entries {
		if i > 0 {
			fmt.Fprintln(p.Out)
		}
		for _, line := range lines(&entries[i]) {
			if _, err := fmt.Fprintln(p.Out, line); err != nil {
				return err
			}
		}
	}
	return nil
}
