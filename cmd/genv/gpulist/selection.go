package gpulist

import (
	"cmp"
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
func Read(c *cli.Context) (Selection, error) {
	s := Selection{Free: c.Bool("free"), User: snapshot.Username(c.String("user")), Model: ReadModel(c), Sort: c.String("sort")}
	if s.Sort == "" {
		return s, nil
	}
	return s, command.CheckChoices("sort", []string{s.Sort}, sortNames())
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
	if order := orders[s.Sort]; order != nil {
		slices.SortStableFunc(list, func(a, b gpus.GPU) int { return order(&a, &b) })
	}
	return list
}

// sort sorts the rows of all hosts.
func (s *Selection) sort(rows []Row) {
	if order := orders[s.Sort]; order != nil {
		slices.SortStableFunc(rows, func(a, b Row) int { return order(a.GPU, b.GPU) })
	}
}

// orders are the values of --sort: names from a to z, the most welcome state, the longest
// attachment, and the largest numbers first.
var orders = map[string]func(a, b *gpus.GPU) int{
	"state":       func(a, b *gpus.GPU) int { return cmp.Compare(rank(a.State), rank(b.State)) },
	"model":       func(a, b *gpus.GPU) int { return byName(a.Model, b.Model) },
	"user":        func(a, b *gpus.GPU) int { return byName(firstUser(a), firstUser(b)) },
	"memory":      func(a, b *gpus.GPU) int { return largest(a.MemoryUsed, b.MemoryUsed) },
	"utilization": func(a, b *gpus.GPU) int { return largest(a.Utilization, b.Utilization) },
	"temperature": func(a, b *gpus.GPU) int { return largest(a.Temperature, b.Temperature) },
	"power":       func(a, b *gpus.GPU) int { return largest(a.Power, b.Power) },
	"since":       oldest,
}

func sortNames() []string {
	return []string{"state", "model", "user", "memory", "utilization", "temperature", "power", "since"}
}

func rank(s gpus.State) int { return slices.Index(gpus.States(), s) }

// byName compares names; none comes last.
func byName(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

func firstUser(g *gpus.GPU) string {
	if users := g.Users(); len(users) > 0 {
		return string(users[0])
	}
	return ""
}

// largest compares numbers, the largest first; nil comes last.
func largest[N cmp.Ordered](a, b *N) int {
	switch {
	case a != nil && b != nil:
		return cmp.Compare(*b, *a)
	case a != nil:
		return -1
	case b != nil:
		return 1
	}
	return 0
}

func oldest(a, b *gpus.GPU) int {
	first, second := a.Since(), b.Since()
	if first.IsZero() || second.IsZero() {
		return -first.Compare(second)
	}
	return first.Compare(second)
}
