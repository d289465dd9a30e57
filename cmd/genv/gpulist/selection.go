package gpulist

import (
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Selection is which GPUs are listed, and in what order.
type Selection struct {
	Free  bool              // only those that are free
	User  snapshot.Username // only those that this user is attached to or uses; empty for all
	Model *regexp.Regexp    // only these models; nil for all
	Sort  string            // a key of orders; empty for hosts as they were named, by index
}

// Flags are those that Read and ReadOutput read.
func Flags() []cli.Flag {
	return append([]cli.Flag{
		&cli.BoolFlag{Name: "free", Usage: "only GPUs that are free: neither attached nor used"},
		&cli.StringFlag{Name: "user", Usage: "only GPUs that this `USER` is attached to or uses"},
		ModelFlag(),
		command.OneOf(&cli.StringFlag{Name: "sort", Usage: "sort by `WHAT`: " + strings.Join(sortNames(), ", ") + "; what is unknown comes last"}, sortNames()),
		&cli.BoolFlag{Name: "no-summary", Usage: "leave out the summary"},
		command.TimestampFlag(),
	}, command.OutputFlags()...)
}

// ModelFlag is --model, which ReadModel reads.
func ModelFlag() cli.Flag {
	return &cli.StringFlag{Name: "model", Usage: "only GPUs with `PATTERN` in their model's name, such as a100 or h100*80gb"}
}

// Read reads which GPUs are asked for.
func Read(c *cli.Context) Selection {
	return Selection{Free: c.Bool("free"), User: snapshot.Username(c.String("user")), Model: ReadModel(c), Sort: c.String("sort")}
}

// ReadModel reads --model: a part of the name in any case, with * for any characters and ?
// for one. It is nil if the flag isn't given.
func ReadModel(c *cli.Context) *regexp.Regexp {
	if pattern := c.String("model"); pattern != "" {
		return readPattern(pattern)
	}
	return nil
}

func readPattern(pattern string) *regexp.Regexp {
	pattern = strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile(`(?is)` + pattern)
}

// OfModel are the GPUs of the models. What isn't known to be of a model is not.
func (s *Selection) OfModel(list []gpus.GPU) []gpus.GPU {
	if s.Model == nil {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(g gpus.GPU) bool { return !s.Model.MatchString(g.Model) })
}

// Of are the selected GPUs of a host, sorted.
func (s *Selection) Of(list []gpus.GPU) []gpus.GPU {
	list = slices.DeleteFunc(slices.Clone(s.OfModel(list)), func(g gpus.GPU) bool {
		return s.Free && g.State != gpus.Free || s.User != "" && !slices.Contains(g.Users(), s.User)
	})
	if c := s.sortColumn(); c != nil {
		slices.SortStableFunc(list, func(a, b gpus.GPU) int { return compare(c, &gpus.Row{GPU: &a}, &gpus.Row{GPU: &b}) })
	}
	return list
}

// sort sorts the rows of all hosts.
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
