package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/gpulist"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// WaitDocument is the JSON of `genv remote wait`; docs/json.md describes it.
type WaitDocument struct {
	Schema string            `json:"schema"`
	Host   snapshot.Hostname `json:"host"` // the one with the most free GPUs of that kind
	GPUs   []gpus.GPU        `json:"gpus"` // as many of them as --gpus says
	Waited float64           `json:"waited_seconds"`
	unanswered
}

func (p *program) waitCommand() *cli.Command {
	w := &waiter{program: p, named: make(map[string]bool), wanted: requirement{count: 1}, interval: 30 * time.Second}
	return &cli.Command{
		Name:  "wait",
		Usage: "wait until a host has enough free GPUs, and print the host and the GPUs' indices",
		Flags: w.flags(allHosts,
			command.Int(&w.wanted.count, "gpus", "wait for `N` free GPUs on one host").AtLeast(1),
			w.wanted.model.Flag(),
			command.String(&w.wanted.writtenMemory, "memory",
				"only GPUs with at least this `MEMORY` in all, such as 40g"),
			command.Duration(&w.within, "within", "give up after this `TIME`, in seconds or as 2h").
				Config(command.Site).DefaultText("no limit"),
			command.Duration(&w.interval, "interval", "ask all hosts again after this `TIME`, in seconds or as 1m").
				Config(command.Site),
			command.FormatFlag(&w.format, "tui", "json")),
		Action: w.start,
	}
}

// waiter waits until a host has enough free GPUs, as its flags say.
type waiter struct {
	*program
	hostFlags
	wanted   requirement
	interval time.Duration
	within   time.Duration // 0 for ever
	format   string

	fleet       *fleet
	snapshotter *controller.Snapshotter
	named       map[string]bool // the hosts of which it was printed that they failed
}

// start returns when a host has enough free GPUs, and prints which.
func (w *waiter) start(c *cli.Context) (err error) {
	if w.wanted.writtenMemory != "" {
		if w.wanted.memory, err = text.ParseMemory(w.wanted.writtenMemory); err != nil {
			return command.WrongFlag("memory", ": %w", err)
		}
	}
	if w.fleet, err = w.openHosts(c, &w.hostFlags); err != nil {
		return err
	}
	defer w.fleet.close()
	w.snapshotter = &controller.Snapshotter{Asker: *w.fleet.asker()}
	w.snapshotter.Link = newWaitLink(w.fleet)
	return w.run(c.Context)
}

// errGivenUp ends a wait after --within.
var errGivenUp = errors.New("gave up")

func (w *waiter) run(ctx context.Context) error {
	if w.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.within, errGivenUp)
		defer cancel()
	}
	begun := w.Now()
	ctx, withdraw := context.WithCancel(ctx)
	defer withdraw()
	var queue *queues
	for said := false; ; {
		seen := w.snapshotter.Look(ctx)
		w.fleet.progress.End()
		failures := render.FailuresIn(seen.Cluster)
		inTurn := seen.Cluster // of hosts where others wait, only what is kept for this user
		inTurn.Hosts = slices.DeleteFunc(slices.Clone(inTurn.Hosts), func(h snapshot.Host) bool {
			return queue.has(h.Name) || h.Snapshot != nil && len(h.Snapshot.Waits) > 0
		})
		host, found := w.wanted.Find(inTurn, isFree)
		if found == nil {
			host, found = w.wanted.Find(inTurn, mayBeFree)
		}
		if offer := queue.offered(); offer != nil {
			host, found = snapshot.Hostname(offer.host.Name), w.wanted.among(seen.Cluster, offer)
		}
		switch {
		case found != nil:
			w.show(failures, &seen)
			w.warn(host, found)
			return w.print(&WaitDocument{
				Schema: "genv.remote.wait/1", Host: host, GPUs: found, Waited: w.Now().Sub(begun).Seconds(),
				unanswered: unanswered{failures, append([]controller.Duplicate{}, seen.Duplicates...)},
			})
		case ctx.Err() != nil:
			return w.ended(ctx)
		case w.exitOnError && len(failures) > 0:
			return w.fleet.conclude(failures, seen.Duplicates)
		case len(failures) == 0 && !w.wanted.Exists(seen.Cluster):
			return command.UsageError("no host has %s, free or not: `genv remote gpus` lists what there is",
				w.wanted.Of(""))
		}
		w.show(failures, &seen)
		if !said {
			fmt.Fprintf(w.Err, "Waiting for %s on one of %s, asked every %s. Ctrl-C ends it.\n",
				w.wanted.Of("free "), text.Plural(len(seen.Cluster.Hosts), "host"), text.FormatDuration(w.interval))
			said = true
		}
		if queue == nil {
			queue = w.fleet.wait(ctx, w.wanted.count, w.wanted.suits(seen.Cluster))
		}
		w.fleet.progress.Note(w.wanted.Progress(seen.Cluster))
		select {
		case <-ctx.Done():
			return w.ended(ctx)
		case offer := <-queue.offers:
			queue.offers <- offer // taken after the next look
		case <-time.After(w.interval):
		}
	}
}

func (w *waiter) ended(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errGivenUp) {
		return fmt.Errorf("no host had %s within %s", w.wanted.Of("free "), text.FormatDuration(w.within))
	}
	return fmt.Errorf("interrupted: no host had %s yet", w.wanted.Of("free "))
}

// show prints which hosts fail, each once.
func (w *waiter) show(failures []remote.Failure, seen *controller.Look) {
	render.WriteDuplicates(w.Err, seen.Duplicates)
	var unnamed []remote.Failure
	for _, f := range failures {
		if !w.named[f.Host] && f.Class != remote.Cancelled {
			unnamed = append(unnamed, f)
			w.named[f.Host] = true
		}
	}
	if !w.fleet.Quiet {
		render.WriteFailures(w.Err, unnamed, len(seen.Cluster.Hosts))
	}
}

// warn says which GPUs of a host may not be in order.
func (w *waiter) warn(host snapshot.Hostname, found []gpus.GPU) {
	for i := range found {
		if g := &found[i]; !isFree(g) {
			w.Warn(fmt.Sprintf("Warning: GPU %d of %s may not work well: the driver reports %s", g.Index, host,
				g.Problem))
		}
	}
}

// print prints a host with the indices of its free GPUs, as in "gpu-02 0,3".
func (w *waiter) print(found *WaitDocument) error {
	if w.format == "json" {
		return render.WriteJSON(w.Out, found)
	}
	indices := make([]snapshot.DeviceIndex, len(found.GPUs))
	for i := range found.GPUs {
		indices[i] = found.GPUs[i].Index
	}
	_, err := fmt.Fprintln(w.Out, text.Printable(string(found.Host)), text.JoinIndices(indices))
	return err
}

// requirement is how many GPUs of a kind somebody wants on one host.
type requirement struct {
	count  int
	model  gpulist.Model
	memory int64 // the least, in bytes; 0 for any

	writtenMemory string
}

// Of says what is wanted, as in "2 free GPUs with \"a100\" in their model and at least 40g".
func (r *requirement) Of(state string) string {
	what := text.Plural(r.count, state+"GPU")
	if r.model.Pattern != "" {
		what += fmt.Sprintf(" of model %s", text.Shown(r.model.Pattern))
	}
	if r.memory > 0 {
		what += fmt.Sprintf(" with at least %s of memory", r.writtenMemory)
	}
	return what
}

// fits says whether a GPU is of the kind that is wanted, no matter who uses it.
func (r *requirement) fits(g *gpus.GPU) bool {
	return r.model.Matches(g.Model) && (r.memory == 0 || g.MemoryTotal != nil && *g.MemoryTotal >= r.memory)
}

// mayFit is fits, and true where that isn't known.
func (r *requirement) mayFit(g *gpus.GPU) bool {
	return (g.Model == "" || r.model.Matches(g.Model)) && (r.memory == 0 || g.MemoryTotal == nil ||
		*g.MemoryTotal >= r.memory)
}

func isFree(g *gpus.GPU) bool { return g.State == gpus.Free }

// mayBeFree is isFree, and true of an unused GPU of which only the temperature, utilization or power is unknown.
func mayBeFree(g *gpus.GPU) bool {
	ails := g.State == gpus.Unknown && g.Problem != "" && g.UUID != ""
	return isFree(g) || ails && g.Unexplained() == 0 && len(g.Attached)+len(g.Processes) == 0
}

// Find is the host with the most GPUs of the kind that match, the first named of equals, with as
// many of them as are wanted, free ones first; nil if none has enough.
func (r *requirement) Find(
	cluster snapshot.Cluster, matches func(*gpus.GPU) bool,
) (host snapshot.Hostname, found []gpus.GPU) {
	for _, h := range cluster.Answered() {
		fitting := only(h.Snapshot, func(g *gpus.GPU) bool { return matches(g) && r.fits(g) })
		if len(fitting) >= r.count && len(fitting) > len(found) {
			host, found = h.Name, fitting
		}
	}
	if found != nil {
		last := gpus.Last(found)
		slices.SortStableFunc(found, func(a, b gpus.GPU) int {
			return cmp.Or(slices.Index(gpus.States(), a.State)-slices.Index(gpus.States(), b.State),
				slices.Index(last, a.Index)-slices.Index(last, b.Index))
		})
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
		here := len(only(h.Snapshot, func(g *gpus.GPU) bool { return isFree(g) && r.fits(g) }))
		free, most = free+here, max(most, here)
		total += len(only(h.Snapshot, r.fits))
	}
	return fmt.Sprintf("%d of %s free, at most %d on one host …", free, text.Plural(total, "GPU"), most)
}

// suits are the GPUs of the kind, whoever uses them, by host, where there are enough.
func (r *requirement) suits(cluster snapshot.Cluster) map[string][]snapshot.DeviceIndex {
	suits := make(map[string][]snapshot.DeviceIndex)
	for _, h := range cluster.Answered() {
		if fitting := only(h.Snapshot, r.fits); len(fitting) >= r.count {
			for i := range fitting {
				suits[string(h.Name)] = append(suits[string(h.Name)], fitting[i].Index)
			}
		}
	}
	return suits
}

// among are the GPUs of an offer as a look shows them.
func (r *requirement) among(cluster snapshot.Cluster, offer *queueOffer) (list []gpus.GPU) {
	for _, h := range cluster.Answered() {
		if string(h.Name) == offer.host.Name {
			list = only(h.Snapshot, func(g *gpus.GPU) bool { return slices.Contains(offer.gpus, g.Index) })
		}
	}
	return list
}

// only are the GPUs of a host that can be used whole and match.
func only(s *snapshot.Snapshot, matches func(*gpus.GPU) bool) []gpus.GPU {
	var list []gpus.GPU
	for _, g := range gpus.Of(s) {
		if g.State != gpus.Failed && g.State != gpus.Unusable && !g.MIGMode && matches(&g) {
			list = append(list, g)
		}
	}
	return list
}
