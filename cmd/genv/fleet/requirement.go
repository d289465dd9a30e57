package fleet

import (
	"fmt"
	"regexp"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/gpulist"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// requirement is how many GPUs of a kind somebody wants on one host.
type requirement struct {
	count  int
	model  *regexp.Regexp // nil for any
	memory int64          // the least, in bytes; 0 for any

	writtenModel, writtenMemory string
}

// readRequirement reads --gpus, --model and --memory.
func readRequirement(c *cli.Context) (requirement, error) {
	r := requirement{count: c.Int("gpus"), model: gpulist.ReadModel(c), writtenModel: c.String("model"), writtenMemory: c.String("memory")}
	if r.count < 1 {
		return r, command.UsageError("--gpus %d: write 1 or more", r.count)
	}
	if r.writtenMemory == "" {
		return r, nil
	}
	var err error
	if r.memory, err = text.ParseMemory(r.writtenMemory); err != nil {
		return r, command.UsageError("--memory: %w", err)
	}
	return r, nil
}

// Of says what is wanted, as in "2 free GPUs with \"a100\" in their model and at least 40g".
func (r *requirement) Of(state string) string {
	what := render.Plural(r.count, state+"GPU")
	if r.writtenModel != "" {
		what += fmt.Sprintf(" of model %s", text.Shown(r.writtenModel))
	}
	if r.memory > 0 {
		what += fmt.Sprintf(" with at least %s of memory", r.writtenMemory)
	}
	return what
}

// fits says whether a GPU is of the kind that is wanted, whoever uses it.
func (r *requirement) fits(g *gpus.GPU) bool {
	return (r.model == nil || r.model.MatchString(g.Model)) && (r.memory == 0 || g.MemoryTotal != nil && *g.MemoryTotal >= r.memory)
}

// mayFit is fits, and true where that isn't known.
func (r *requirement) mayFit(g *gpus.GPU) bool {
	return (r.model == nil || g.Model == "" || r.model.MatchString(g.Model)) && (r.memory == 0 || g.MemoryTotal == nil || *g.MemoryTotal >= r.memory)
}

func (r *requirement) free(g *gpus.GPU) bool { return g.State == gpus.Free && r.fits(g) }

// Find is the host with the most free GPUs of the kind, the first named of equals, with as
// many of them as are wanted; nil if none has enough.
func (r *requirement) Find(cluster snapshot.Cluster) (host snapshot.Hostname, found []gpus.GPU) {
	for _, h := range cluster.Answered() {
		if fitting := only(h.Snapshot, r.free); len(fitting) >= r.count && len(fitting) > len(found) {
			host, found = h.Name, fitting
		}
	}
	if found != nil {
		found = found[:r.count]
	}
	return host, found
}

// Exists says whether a host may have enough GPUs of the kind, free or not.
func (r *requirement) Exists(cluster snapshot.Cluster) bool {
	for _, h := range cluster.Answered() {
		if len(only(h.Snapshot, r.mayFit)) >= r.count {
			return true
		}
	}
	return false
}

// Progress says how far from enough all hosts are.
func (r *requirement) Progress(cluster snapshot.Cluster) string {
	free, total, most := 0, 0, 0
	for _, h := range cluster.Answered() {
		here := len(only(h.Snapshot, r.free))
		free, most = free+here, max(most, here)
		total += len(only(h.Snapshot, r.fits))
	}
	return fmt.Sprintf("%d of %s free, at most %d on one host …", free, render.Plural(total, "GPU"), most)
}

// only are the GPUs of a host that match.
func only(s *snapshot.Snapshot, matches func(*gpus.GPU) bool) []gpus.GPU {
	var list []gpus.GPU
	for _, g := range gpus.Of(s) {
		if matches(&g) {
			list = append(list, g)
		}
	}
	return list
}
