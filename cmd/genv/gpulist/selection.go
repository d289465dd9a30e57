package gpulist

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Selection is which GPUs are listed, and in what order.
type Selection struct {
	Free  bool              // only those that are free
	User  snapshot.Username // only those that this user is attached to or uses; empty for all
	Model Model             // only these models
	Sort  string            // a key of orders; empty for hosts as they were named, by index
}

// Flags is what the flags of a list say, and how it is printed.
type Flags struct {
	Selection
	render.Output
	NoSummary bool
	Width     int  // of the terminal in characters; 0 if there is none
	Colourful bool // the states
	Now       time.Time
}

// Flags are the flags.
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

// Model selects GPUs by a part of their model's name in any case, with * for any characters and ? for one.
type Model struct {
	Pattern string // as it was written; empty for all
	read    *regexp.Regexp
}

// Flag is --model.
func (m *Model) Flag() cli.Flag {
	return command.String(&m.Pattern, "model", "only GPUs with `PATTERN` in their model's name, such as a100 or "+
		"h100*80gb")
}

// Matches says whether a model is selected. One that isn't known is not.
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

// OfModel are the GPUs of the models. What isn't known to be of a model is not.
func (s *Selection) OfModel(list []gpus.GPU) []gpus.GPU {
	return slices.DeleteFunc(slices.Clone(list), func(g gpus.GPU) bool { return !s.Model.Matches(g.Model) })
}

// Of are the selected GPUs of a host, sorted.
func (s *Selection) Of(list []gpus.GPU) []gpus.GPU {
	list = slices.DeleteFunc(slices.Clone(s.OfModel(list)), func(g gpus.GPU) bool {
		return s.Free && g.State != gpus.Free || s.User != "" && !slices.Contains(g.Users(), s.User)
	})
	if c := s.sortColumn(); c != nil {
		slices.SortStableFunc(list, func(a, b gpus.GPU) int {
			return compare(c, &gpus.Row{GPU: &a}, &gpus.Row{GPU: &b})
		})
	}
	return list
}

func (s *Selection) sort(rows []gpus.Row) {
	if c := s.sortColumn(); c != nil {
		slices.SortStableFunc(rows, func(a, b gpus.Row) int { return compare(c, &a, &b) })
	}
}

// sortColumn is the column of --sort; nil for none.
func (s *Selection) sortColumn() *gpus.Column {
	columns := gpus.Columns()
	if i := slices.IndexFunc(columns, func(c gpus.Column) bool { return s.Sort != "" && c.Sort == s.Sort }); i >= 0 {
		return &columns[i]
	}
	return nil
}

// compare has the largest numbers first, and what is unknown last.
func compare(c *gpus.Column, a, b *gpus.Row) int {
	if c.Descending {
		return c.Compare(b, a)
	}
	return c.Compare(a, b)
}

func sortNames() (names []string) {
	for _, c := range gpus.Columns() {
		if c.Sort != "" {
			names = append(names, c.Sort)
		}
	}
	return names
}
