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

// WaitDocument is the JSON of `genv remote wait`.
type WaitDocument struct {
	Schema string            `json:"schema"`
	Host   snapshot.Hostname `json:"host"` // the one with the most free GPUs of that kind
	GPUs   []gpus.GPU        `json:"gpus"` // as many of them as --gpus says
	Waited float64           `json:"waited_seconds"`
	unanswered
}

func waitCommand(h hostFlags) *cli.Command {
	w := &waiter{hostFlags: h, named: make(map[string]bool), count: 1, interval: 30 * time.Second}
	return &cli.Command{
		Name:  "wait",
		Usage: "wait until a host has enough free GPUs, and print the host and the GPUs' indices",
		Flags: w.flags(allHosts,
			command.Int(&w.count, "gpus", "wait for `N` free GPUs on one host").AtLeast(1),
			w.model.Flag(),
			command.String(&w.writtenMemory, "memory",
				"only GPUs with at least this `MEMORY` in all, such as 40g"),
			command.Duration(&w.within, "within", "give up after this `TIME`, in seconds or as 2h").
				Config(command.Site).DefaultText("no limit"),
			command.Duration(&w.interval, "interval", "ask all hosts again after this `TIME`, in seconds or as 1m").
				Config(command.Site),
			command.FormatFlag(&w.format, "tui", "json")),
		Action: w.run,
	}
}

type waiter struct {
	hostFlags
	count         int
	model         gpulist.Model
	memory        int64 // at least, in bytes; 0 for any
	writtenMemory string
	interval      time.Duration
	within        time.Duration // 0 for unlimited
	format        string

	fleet *fleet
	named map[string]bool // failed hosts that were printed
}

var errGivenUp = errors.New("gave up")

// giveUpAfter adds a timeout; 0 for none.
func giveUpAfter(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	if within == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, within, errGivenUp)
}

func (w *waiter) run(c *cli.Context) (err error) {
	if w.writtenMemory != "" {
		if w.memory, err = text.ParseMemory(w.writtenMemory); err != nil {
			return command.WrongFlag("memory", ": %w", err)
		}
	}
	if w.fleet, err = w.openHosts(c); err != nil {
		return err
	}
	defer w.fleet.close()
	snapshotter := &controller.Snapshotter{Survey: *w.fleet.asker()}
	snapshotter.Link = &waitLink{w.fleet.commands(), newRecent[error](w.Now, 10*time.Minute)}
	ctx, withdraw := giveUpAfter(c.Context, w.within)
	begun, queue, offered := w.Now(), new(queues), (*offer)(nil)
	defer func() { withdraw(); queue.hosts.Wait() }()
	for said := false; ; said = true {
		seen := snapshotter.Look(ctx)
		w.fleet.progress.End()
		failures := render.FailuresIn(seen.Cluster)
		host, found := w.choose(seen.Cluster, queue, offered)
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
		case len(failures) == 0 && len(w.suits(seen.Cluster, true)) == 0:
			return command.UsageError("no host has %s, free or not: `genv remote gpus` lists what there is", w.what(""))
		}
		w.show(failures, &seen)
		if !said {
			fmt.Fprintf(w.Err, "Waiting for %s on one of %s, asked every %s. Ctrl-C ends it.\n",
				w.what("free "), text.Plural(len(seen.Cluster.Hosts), "host"), text.FormatDuration(w.interval))
			queue = w.fleet.wait(ctx, w.count, w.suits(seen.Cluster, false), min(w.interval, roomEvery))
		}
		offered = queue.pause(ctx, w.fleet, w.interval, w.progress(seen.Cluster))
	}
}

// choose returns nil for no host. On hosts where others wait, only an offer counts.
func (w *waiter) choose(
	cluster snapshot.Cluster, queue *queues, offered *offer,
) (snapshot.Hostname, []gpus.GPU) {
	for _, h := range cluster.Answered() {
		if offered == nil || string(h.Name) != offered.Host.Name {
			continue
		}
		kept := only(h.Snapshot, func(g *gpus.GPU) bool { return slices.Contains(offered.Value, g.Index) })
		if len(kept) >= w.count {
			return h.Name, kept
		}
	}
	cluster.Hosts = slices.DeleteFunc(slices.Clone(cluster.Hosts), func(h snapshot.Host) bool {
		return queue.has(string(h.Name)) || h.Snapshot != nil && len(h.Snapshot.Waits) > 0
	})
	host, found := w.find(cluster, isFree)
	if found == nil {
		host, found = w.find(cluster, mayBeFree)
	}
	return host, found
}

func (w *waiter) ended(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errGivenUp) {
		return fmt.Errorf("no host had %s within %s", w.what("free "), text.FormatDuration(w.within))
	}
	return fmt.Errorf("interrupted: no host had %s yet", w.what("free "))
}

func (w *waiter) show(failures []remote.Failure, seen *controller.Fleet) {
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

func (w *waiter) warn(host snapshot.Hostname, found []gpus.GPU) {
	for i := range found {
		if g := &found[i]; !isFree(g) {
			w.Warnf("Warning: GPU %d of %s may not work well: the driver reports %s", g.Index, host, g.Problem)
		}
	}
}

func (w *waiter) print(found *WaitDocument) error {
	if w.format == "json" {
		return render.WriteJSON(w.Out, found)
	}
	_, err := fmt.Fprintln(w.Out, text.Printable(string(found.Host)), text.JoinIndices(indicesOf(found.GPUs)))
	return err
}

// what is as in "2 free GPUs of model a100 with at least 40g of memory".
func (w *waiter) what(state string) string {
	what := text.Plural(w.count, state+"GPU")
	if w.model.Pattern != "" {
		what += fmt.Sprintf(" of model %s", text.Shown(w.model.Pattern))
	}
	if w.memory > 0 {
		what += fmt.Sprintf(" with at least %s of memory", w.writtenMemory)
	}
	return what
}

// fits reports whether a GPU, free or not, is of the wanted kind. With orUnknown, an unknown model or memory fits.
func (w *waiter) fits(g *gpus.GPU, orUnknown bool) bool {
	model, memory := w.model.Matches(g.Model), w.memory == 0 || g.MemoryTotal != nil && *g.MemoryTotal >= w.memory
	return (model || orUnknown && g.Model == "") && (memory || orUnknown && g.MemoryTotal == nil)
}

func isFree(g *gpus.GPU) bool { return g.State == gpus.Free }

// mayBeFree also accepts an unused GPU whose temperature, utilization or power alone is unknown.
func mayBeFree(g *gpus.GPU) bool {
	ails := g.State == gpus.Unknown && g.Problem != "" && g.UUID != ""
	return isFree(g) || ails && g.Unexplained() == 0 && len(g.Attached)+len(g.Processes) == 0
}

// find returns the host with the most matching GPUs, the first of equals, and w.count of them, free ones first.
func (w *waiter) find(
	cluster snapshot.Cluster, matches func(*gpus.GPU) bool,
) (host snapshot.Hostname, found []gpus.GPU) {
	for _, h := range cluster.Answered() {
		fitting := only(h.Snapshot, func(g *gpus.GPU) bool { return matches(g) && w.fits(g, false) })
		if len(fitting) >= w.count && len(fitting) > len(found) {
			host, found = h.Name, fitting
		}
	}
	if found != nil {
		last := gpus.Last(found)
		slices.SortStableFunc(found, func(a, b gpus.GPU) int {
			return cmp.Or(slices.Index(gpus.States(), a.State)-slices.Index(gpus.States(), b.State),
				slices.Index(last, a.Index)-slices.Index(last, b.Index))
		})
		found = found[:w.count]
	}
	return host, found
}

func (w *waiter) progress(cluster snapshot.Cluster) string {
	free, total, most := 0, 0, 0
	for _, h := range cluster.Answered() {
		here := len(only(h.Snapshot, func(g *gpus.GPU) bool { return isFree(g) && w.fits(g, false) }))
		free, most = free+here, max(most, here)
		total += len(only(h.Snapshot, func(g *gpus.GPU) bool { return w.fits(g, false) }))
	}
	return fmt.Sprintf("%d of %s free, at most %d on one host …", free, text.Plural(total, "GPU"), most)
}

// suits leaves out hosts with too few GPUs.
func (w *waiter) suits(cluster snapshot.Cluster, orUnknown bool) map[string][]snapshot.DeviceIndex {
	suits := make(map[string][]snapshot.DeviceIndex)
	for _, h := range cluster.Answered() {
		fitting := only(h.Snapshot, func(g *gpus.GPU) bool { return w.fits(g, orUnknown) })
		if len(fitting) >= w.count {
			suits[string(h.Name)] = indicesOf(fitting)
		}
	}
	return suits
}

func indicesOf(list []gpus.GPU) []snapshot.DeviceIndex {
	indices := make([]snapshot.DeviceIndex, len(list))
	for i := range list {
		indices[i] = list[i].Index
	}
	return indices
}

// only leaves out GPUs that can't be used whole.
func only(s *snapshot.Snapshot, matches func(*gpus.GPU) bool) []gpus.GPU {
	var list []gpus.GPU
	for _, g := range gpus.Of(s) {
		if g.State != gpus.Failed && g.State != gpus.Unusable && !g.MIGMode && matches(&g) {
			list = append(list, g)
		}
	}
	return list
}
