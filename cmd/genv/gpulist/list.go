// Package gpulist selects, sorts and prints lists of GPUs, for `genv gpus` and `genv remote
// gpus`. On a terminal the columns are those that fit; elsewhere nothing is cut.
package gpulist

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Output is how a list is printed.
type Output struct {
	render.Output
	NoSummary bool
	Width     int  // of the terminal in characters; 0 if there is none
	Colourful bool // the states
	Now       time.Time
}

// ReadOutput reads command.OutputFlags, --timestamp and --no-summary.
func ReadOutput(c *cli.Context, p *command.Program) (Output, error) {
	output, err := command.ReadOutput(c)
	return Output{
		Output: output, NoSummary: c.Bool("no-summary"), Now: p.Now(), Width: render.Width(p.Out), Colourful: render.Colourful(p.Out, p.Getenv),
	}, err
}

// Row is a GPU of a host. The host of `genv gpus` has no name, and no column.
type Row struct {
	Host string
	GPU  *gpus.GPU
}

// List is the selected GPUs, and how many there are.
type List struct {
	Rows        []Row
	Total, Free int // of all GPUs of the models that are asked for
	Unknown     int // whose state is unknown, of Total
	Broken      int // that have failed, of Total
	Hosts       int // that answered; 0 for `genv gpus`
	Failed      int // hosts
}

// here says whether it is a list of `genv gpus`.
func (l *List) here() bool { return l.Hosts+l.Failed == 0 }

// Add counts the GPUs of a host, and adds those that are selected.
func (l *List) Add(host string, all []gpus.GPU, s *Selection) {
	for _, g := range s.OfModel(all) {
		l.Total++
		switch g.State {
		case gpus.Free:
			l.Free++
		case gpus.Unknown:
			l.Unknown++
		case gpus.Failed:
			l.Broken++
		}
	}
	selected := s.Of(all)
	for i := range selected {
		l.Rows = append(l.Rows, Row{host, &selected[i]})
	}
}

// Write prints the list as text or CSV; only text has a summary.
func (l *List) Write(w io.Writer, s *Selection, output *Output) error {
	s.sort(l.Rows)
	if output.Format == "csv" {
		return l.writeCSV(w, output)
	}
	var b strings.Builder
	if len(l.Rows) > 0 || !output.NoHeader {
		l.writeTable(&b, output)
	}
	if !output.NoSummary {
		fmt.Fprintf(&b, "\n%s\n", l.summary(s))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// summary says how many are free, or how many a user has.
func (l *List) summary(s *Selection) string {
	line := fmt.Sprintf("%d of %s %s free", l.Free, render.Plural(l.Total, "GPU"), is(l.Free, l.Total))
	if s.User != "" {
		line = fmt.Sprintf("%s has or uses %d of %s", text.Shown(string(s.User)), len(l.Rows), render.Plural(l.Total, "GPU"))
	}
	if !l.here() {
		line += " on " + render.Plural(l.Hosts, "host")
	}
	if l.Broken > 0 && s.User == "" {
		line += fmt.Sprintf("; %d %s failed", l.Broken, has(l.Broken))
	}
	if l.Unknown > 0 && s.User == "" {
		line += fmt.Sprintf("; the state of %d is unknown", l.Unknown)
	}
	return line + render.AlsoFailed(l.Failed)
}

func has(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func is(n, of int) string {
	if n == 1 || of == 1 {
		return "is"
	}
	return "are"
}

func (l *List) writeCSV(w io.Writer, output *Output) error {
	var rows [][]string
	if !output.NoHeader {
		rows = append(rows, []string{
			"HOST", "GPU", "UUID", "MODEL", "STATE", "MEMORY USED", "MEMORY TOTAL", "UTILIZATION", "TEMPERATURE", "POWER",
			"USERS", "ATTACHED TO", "SINCE", "PROCESSES",
		})
	}
	for _, r := range l.Rows {
		g := r.GPU
		var users []string
		for _, user := range g.Users() {
			users = append(users, nameOf(user))
		}
		row := []string{
			r.Host, g.Index.String(), string(g.UUID), g.Model, string(g.State), number(g.MemoryUsed), number(g.MemoryTotal),
			number(g.Utilization), number(g.Temperature), number(g.Power),
			strings.Join(users, ", "), attachedTo(g), since(g, output), processesOf(g),
		}
		for i := range row {
			row[i] = text.Printable(row[i])
		}
		rows = append(rows, row)
	}
	if l.here() {
		for i := range rows {
			rows[i] = rows[i][1:]
		}
	}
	return render.WriteCSV(w, rows)
}
