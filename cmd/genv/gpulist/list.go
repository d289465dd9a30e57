// Package gpulist selects, sorts and prints lists of GPUs, for `genv gpus` and `genv remote gpus`. On a terminal,
// columns that don't fit are left out; elsewhere nothing is cut.
package gpulist

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// Complete adds properties of the terminal.
func (o *Flags) Complete(p *command.Program) {
	o.Now, o.Width, o.Colourful = p.Now(), render.Width(p.Out), render.Colourful(p.Out, p.Getenv)
}

// List is the selected GPUs and all counts. The host of `genv gpus` has no name and no column.
type List struct {
	Rows   []gpus.Row
	Counts gpus.StateCounts // of all GPUs of the wanted models
	Hosts  int              // with an answer; 0 for `genv gpus`
	Failed int              // hosts

	Reserved []Reserved      // reservations
	waits    map[string]bool // ids of commands; each may wait on several hosts
	people   map[snapshot.Username]int
}

// AddWaits counts waiting commands of a host.
func (l *List) AddWaits(list []snapshot.Wait) {
	if l.waits == nil {
		l.waits, l.people = make(map[string]bool), make(map[snapshot.Username]int)
	}
	for i := range list {
		if w := &list[i]; !l.waits[w.ID] {
			l.waits[w.ID] = true
			l.people[gpus.UserName(w.Username, &w.UID)] += w.GPUs
		}
	}
}

func (l *List) waiting() string {
	if len(l.waits) == 0 {
		return ""
	}
	names := slices.SortedFunc(maps.Keys(l.people), func(a, b snapshot.Username) int {
		return cmp.Or(l.people[b]-l.people[a], cmp.Compare(a, b))
	})
	const most = 5
	var who []string
	for _, name := range names[:min(len(names), most)] {
		who = append(who, fmt.Sprintf("%s for %d", gpus.ShownUser(name), l.people[name]))
	}
	if more := len(names) - most; more > 0 {
		who = append(who, fmt.Sprintf("and %d more", more))
	}
	n := len(l.waits)
	return fmt.Sprintf("\n%s %s for GPUs: %s", text.Plural(n, "command"), verb(n == 1, "waits", "wait"),
		strings.Join(who, ", "))
}

func verb(ofOne bool, one, many string) string {
	if ofOne {
		return one
	}
	return many
}

// Reserved is a reservation in words.
type Reserved struct {
	From time.Time
	Text string
}

const maxReserved = 8 // reservations listed

// here reports whether it is a list of `genv gpus`.
func (l *List) here() bool { return l.Hosts+l.Failed == 0 }

// Add counts the GPUs of a host, and adds the selected ones.
func (l *List) Add(host string, all []gpus.GPU, s *Flags) {
	l.Counts.Add(s.OfModel(all)...)
	selected := s.Of(all)
	for i := range selected {
		l.Rows = append(l.Rows, gpus.Row{Host: snapshot.Hostname(host), GPU: &selected[i]})
	}
}

// Write prints text with a summary, or CSV.
func (l *List) Write(w io.Writer, output *Flags) error {
	if order := output.order(); order != nil {
		slices.SortStableFunc(l.Rows, func(a, b gpus.Row) int { return order(&a, &b) })
	}
	if output.Format == "csv" {
		return l.writeCSV(w, output)
	}
	var b strings.Builder
	if len(l.Rows) > 0 || !output.NoHeader {
		l.writeTable(&b, output)
	}
	if !output.NoSummary {
		fmt.Fprintf(&b, "\n%s\n", l.summary(output))
		slices.SortStableFunc(l.Reserved, func(a, b Reserved) int { return a.From.Compare(b.From) })
		for _, r := range l.Reserved[:min(len(l.Reserved), maxReserved)] {
			fmt.Fprintln(&b, text.Printable(r.Text))
		}
		if more := len(l.Reserved) - maxReserved; more > 0 {
			fmt.Fprintf(&b, "and %s more; genv reserve --list shows those of a host\n",
				text.Plural(more, "reservation"))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (l *List) summary(o *Flags) string {
	n := &l.Counts
	free, total := n.Free, n.Total()
	line := fmt.Sprintf("%d of %s %s free", free, text.Plural(total, "GPU"), verb(free == 1 || total == 1, "is", "are"))
	if o.User != "" {
		line = fmt.Sprintf("%s has or uses %d of %s", text.Shown(string(o.User)), len(l.Rows),
			text.Plural(total, "GPU"))
	}
	if !l.here() {
		line += " on " + text.Plural(l.Hosts, "host")
	}
	if o.User != "" {
		n = &gpus.StateCounts{}
	}
	if n.Failed > 0 {
		line += fmt.Sprintf("; %d %s failed", n.Failed, verb(n.Failed == 1, "has", "have"))
	}
	if n.Unusable > 0 {
		line += fmt.Sprintf("; %d %s unusable", n.Unusable, verb(n.Unusable == 1, "is", "are"))
	}
	if n.Unknown > 0 {
		line += fmt.Sprintf("; the state of %d is unknown", n.Unknown)
	}
	return line + render.AlsoFailed(l.Failed) + l.waiting()
}

func (l *List) columns(has func(*gpus.Column) bool) []gpus.Column {
	return slices.DeleteFunc(gpus.Columns(), func(c gpus.Column) bool {
		return !has(&c) || c.Name == "HOST" && l.here()
	})
}

func (l *List) writeCSV(w io.Writer, output *Flags) error {
	columns := l.columns(func(c *gpus.Column) bool { return c.CSV != "" })
	rows := make([][]string, 1+len(l.Rows))
	for _, c := range columns {
		rows[0] = append(rows[0], c.CSV)
		for i := range l.Rows {
			rows[i+1] = append(rows[i+1], text.Printable(c.Data(&l.Rows[i], output.times)))
		}
	}
	if output.NoHeader {
		rows = rows[1:]
	}
	return render.WriteCSV(w, rows)
}

func (l *List) writeTable(b *strings.Builder, output *Flags) {
	table := draw.Table{Painter: draw.Painter{Colour: output.Colourful}, Rows: make([]draw.TableRow, len(l.Rows))}
	columns := l.columns(func(c *gpus.Column) bool { return c.Name != "" && !c.Last })
	columns = append(columns, l.columns(func(c *gpus.Column) bool { return c.Last })...)
	for _, c := range columns {
		cells := make([]string, len(l.Rows))
		for i := range l.Rows {
			cells[i] = text.Printable(c.Text(&l.Rows[i], output.times))
			var as draw.Style
			if c.Name == "STATE" {
				as = colours[l.Rows[i].State]
			}
			table.Rows[i].Cells = append(table.Rows[i].Cells, draw.Styled(cells[i], as))
		}
		if c.Name == "HOST" {
			c.Least = max(c.Least, draw.Distinct(cells)+1)
		}
		c.Width, c.Right = 0, false // Fit computes it, as no row changes
		table.Columns = append(table.Columns, c.ColumnLayout)
	}
	table.Fit(output.Width)
	table.Write(b, !output.NoHeader)
}

// colours repeat what the word of a state says.
var colours = map[gpus.State]draw.Style{
	gpus.Free: draw.Green, gpus.Attached: draw.Yellow, gpus.Idle: draw.Yellow, gpus.Unknown: draw.Magenta,
	gpus.MIG: draw.Green, gpus.Unusable: draw.Red, gpus.Failed: draw.Red,
}

// times is a time, or its age in the largest unit.
func (o *Flags) times(at time.Time) string {
	switch {
	case o.Timestamp && o.Format == "csv":
		return at.Format(time.RFC3339)
	case o.Timestamp:
		return at.Local().Format("2006-01-02 15:04")
	}
	age := max(o.Now.Sub(at), 0) // clocks of hosts differ
	for _, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if age >= unit {
			return text.FormatDuration(age.Truncate(unit))
		}
	}
	return "now"
}

// Flags select, sort and format a list.
type Flags struct {
	Free  bool              // only free GPUs
	User  snapshot.Username // only GPUs that this user is attached to or uses; empty for all
	Model Model             // only these models
	Sort  string            // a column's key; empty for the order of hosts and indices
	render.Output
	NoSummary bool
	Width     int  // of the terminal in characters; 0 for none
	Colourful bool // the states
	Now       time.Time
}

// Flags returns the flags.
func (o *Flags) Flags() []cli.Flag {
	return append([]cli.Flag{
		command.Bool(&o.Free, "free", "only GPUs that are free: neither attached nor used"),
		command.String(&o.User, "user", "only GPUs that this `USER` is attached to or uses"),
		o.Model.Flag(),
		command.String(&o.Sort, "sort", "sort by `WHAT`: "+strings.Join(sortNames(),
			", ")+"; what is unknown comes last").OneOf(sortNames()...),
		command.Bool(&o.NoSummary, "no-summary", "leave out the summary"),
		command.TimestampFlag(&o.Output),
	}, command.OutputFlags(&o.Output)...)
}

// Model selects GPUs by a part of their model's name, ignoring case. * is any characters, ? one.
type Model struct {
	Pattern string // empty for all
	read    *regexp.Regexp
}

// Flag is --model.
func (m *Model) Flag() cli.Flag {
	return command.String(&m.Pattern, "model", "only GPUs with `PATTERN` in their model's name, such as a100 or "+
		"h100*80gb")
}

// Matches reports whether a model is selected; an unknown one isn't.
func (m *Model) Matches(model string) bool {
	if m.Pattern == "" {
		return true
	}
	if m.read == nil {
		pattern := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(m.Pattern))
		m.read = regexp.MustCompile(`(?is)` + pattern)
	}
	return m.read.MatchString(model)
}

// OfModel are the GPUs of the selected models.
func (o *Flags) OfModel(list []gpus.GPU) []gpus.GPU {
	return slices.DeleteFunc(slices.Clone(list), func(g gpus.GPU) bool { return !o.Model.Matches(g.Model) })
}

// Of are the selected GPUs, sorted.
func (o *Flags) Of(list []gpus.GPU) []gpus.GPU {
	list = slices.DeleteFunc(o.OfModel(list), func(g gpus.GPU) bool {
		return o.Free && g.State != gpus.Free || o.User != "" && !slices.Contains(g.Users(), o.User)
	})
	if order := o.order(); order != nil {
		slices.SortStableFunc(list, func(a, b gpus.GPU) int { return order(&gpus.Row{GPU: &a}, &gpus.Row{GPU: &b}) })
	}
	return list
}

// order is that of --sort, with unknown values last; nil for none.
func (o *Flags) order() func(a, b *gpus.Row) int {
	for _, c := range gpus.Columns() {
		switch {
		case o.Sort == "" || c.Sort != o.Sort:
		case c.Descending:
			return func(a, b *gpus.Row) int { return c.Compare(b, a) }
		default:
			return c.Compare
		}
	}
	return nil
}

func sortNames() (names []string) {
	for _, c := range gpus.Columns() {
		if c.Sort != "" {
			names = append(names, c.Sort)
		}
	}
	return names
}
