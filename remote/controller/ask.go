package controller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller/wake"
	"github.com/seed-3119e985/genv/snapshot"
)

// Link is what the controller needs of the genv on its hosts; *agent.Pool provides it. Errors are *remote.Error.
type Link interface {
	Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error)
	// Execute has a host carry out an order, once. After OutcomeUnknown it may have been carried out, in part or whole.
	Execute(ctx context.Context, host remote.Host, o order.Order) (agent.Execution, error)
	// Notify shows messages to users, and returns what became of each; or agent.ErrCannotNotify.
	Notify(ctx context.Context, host remote.Host, messages []agent.Message) ([]agent.Receipt, error)
	// Guard gives or renews the order for a host's kernel guard; agent.ErrCannotGuard if it has none.
	Guard(ctx context.Context, host remote.Host, request agent.GuardRequest) (agent.GuardAnswer, error)
	// About returns what is known about a host without asking it.
	About(host remote.Host) agent.About
}

// Polled hides that a Link can wait for events of hosts (wake.Link): the loop asks them at ticks only.
type Polled struct{ Link }

// Survey asks all hosts of a fleet, and changes none.
type Survey struct {
	Hosts  []remote.Host
	Link   Link
	Fanout int // hosts at a time
	// StopAtFailure ends the questions at the first host that fails. A Controller then does nothing on any host.
	StopAtFailure bool
	// Progress, if set, is called with how many hosts answered or failed, first with 0, from many goroutines.
	Progress func(done, total int)
}

// asking asks hosts in the background, each once at a time.
type asking struct {
	ctx    context.Context //nolint:containedctx // it is for as long as the loop
	cancel context.CancelFunc

	answers mailbox[hostAnswer]
	hosts   map[string]bool // that are being asked, by name; true for those asked at the last tick
	open    int             // hosts that were asked at the last tick, and have not answered
	done    bool            // all have answered, and no event has said so yet

	watch *wake.Watch                // asks hosts between ticks, when something happens there; nil for none
	again map[snapshot.Hostname]bool // the hosts that were asked again since the last tick
}

// tick asks all hosts that are not being asked. First come those that don't wait for their turn.
func (a *asking) tick(asker Survey, now func() time.Time, round int, interval time.Duration) {
	turns := a.turns(asker.Hosts, interval)
	asker.Hosts = slices.DeleteFunc(slices.Clone(asker.Hosts), func(h remote.Host) bool {
		_, asked := a.hosts[h.Name]
		return asked
	})
	slices.SortStableFunc(asker.Hosts, func(a, b remote.Host) int { return turns[a.Name].Compare(turns[b.Name]) })
	for name := range a.hosts {
		a.hosts[name] = false
	}
	a.open, a.done, a.again = len(asker.Hosts), len(asker.Hosts) == 0, make(map[snapshot.Hostname]bool)
	a.ask(asker, now, round, true, turns)
}

// turns are when hosts that listen are asked at a tick. They can wait, since events say what happens there.
func (a *asking) turns(hosts []remote.Host, interval time.Duration) map[string]time.Time {
	turns := make(map[string]time.Time)
	var listening []string
	for _, h := range hosts {
		if a.watch.Listens(h.Name) {
			listening = append(listening, h.Name)
		}
	}
	gap, begun := wake.Spread(len(listening), interval), time.Now()
	for i, name := range listening {
		turns[name] = begun.Add(time.Duration(i) * gap)
	}
	return turns
}

// ask asks hosts. Each gets an answer, if only that it was not asked.
func (a *asking) ask(asker Survey, now func() time.Time, round int, atTick bool, turns map[string]time.Time) {
	for _, h := range asker.Hosts {
		a.hosts[h.Name] = atTick
	}
	a.answers.work.Go(func() {
		results := Ask(a.ctx, &asker, func(ctx context.Context, h remote.Host) (begun bool, err error) {
			if turn, waits := turns[h.Name]; waits {
				remote.Sleep(ctx, time.Until(turn))
			}
			askedAt, start := now(), time.Now()
			s, err := asker.Link.Snapshot(ctx, h)
			came := time.Now()
			a.answers.put(hostAnswer{
				name: h.Name, askedAt: askedAt, came: came, took: came.Sub(start), round: round, snapshot: s, err: err,
			})
			return true, err
		})
		for _, r := range results {
			if !r.Value {
				a.answers.put(hostAnswer{name: r.Host.Name, askedAt: now(), came: time.Now(), round: round, err: r.Err})
			}
		}
	})
}

// errStopped is why hosts were not asked to the end under StopAtFailure.
var errStopped = errors.New("another host failed")

// Ask puts a question to every host. The results are in the order of Hosts.
func Ask[T any](
	ctx context.Context, a *Survey, question func(context.Context, remote.Host) (T, error),
) []remote.Result[T] {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done atomic.Int64
	progress := func(add int64) {
		if a.Progress != nil {
			a.Progress(int(done.Add(add)), len(a.Hosts))
		}
	}
	progress(0)
	return remote.Each(ctx, a.Hosts, a.Fanout, func(ctx context.Context, h remote.Host) (T, error) {
		value, err := question(ctx, h)
		if err != nil && a.StopAtFailure && ctx.Err() == nil {
			cancel(&remote.Error{Class: remote.Cancelled, Err: errStopped})
		}
		progress(1)
		return value, err
	})
}

// noteAnswer notes that a host has answered, and reports whether it was asked at the last tick.
func (a *asking) noteAnswer(answer *hostAnswer) (atTick bool) {
	atTick = a.hosts[answer.name]
	delete(a.hosts, answer.name)
	if atTick {
		a.open--
		a.done = a.open == 0
	}
	return atTick
}

// askAgain asks hosts at once, under the names that answered. With once, it asks each at most once before the next tick.
func (a *asking) askAgain(
	asker Survey, now func() time.Time, fleet *knownFleet, names []snapshot.Hostname, once bool,
) {
	slices.Sort(names)
	asker.Hosts, asker.Progress, asker.StopAtFailure = nil, nil, false
	for _, name := range slices.Compact(names) {
		h := fleet.reached[name]
		if _, asked := a.hosts[h.Name]; asked || once && a.again[name] {
			continue
		}
		a.again[name] = true
		asker.Hosts = append(asker.Hosts, h)
	}
	if len(asker.Hosts) > 0 {
		a.ask(asker, now, fleet.round, false, nil)
	}
}

// listen waits for events of the hosts that answered. With a nil link hosts are asked at ticks only.
func (a *asking) listen(link wake.Link, fleet *knownFleet) {
	if link == nil {
		return
	}
	if a.watch == nil {
		a.watch = wake.Start(link)
	}
	hosts := make([]remote.Host, 0, len(fleet.Cluster.Hosts))
	for i := range fleet.Cluster.Hosts {
		if h := &fleet.Cluster.Hosts[i]; h.Snapshot != nil {
			hosts = append(hosts, fleet.reached[h.Name])
		}
	}
	a.watch.Watch(hosts)
}

func (a *asking) stopListening() {
	a.watch.Close()
	a.watch = nil
}

// mailbox has what goroutines have finished. They don't wait until it is taken.
type mailbox[T any] struct {
	work sync.WaitGroup // of these goroutines

	mu     sync.Mutex
	list   []T
	signal chan struct{}
}

// ready has a value when something was put; it may have been taken since.
func (m *mailbox[T]) ready() chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.signal == nil {
		m.signal = make(chan struct{}, 1)
	}
	return m.signal
}

func (m *mailbox[T]) put(one T) {
	m.mu.Lock()
	m.list = append(m.list, one)
	m.mu.Unlock()
	select {
	case m.ready() <- struct{}{}:
	default: // the one before was not taken yet
	}
}

func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.list
	m.list = nil
	return list
}

// Snapshotter collects snapshots again and again. It is not safe for concurrent use.
type Snapshotter struct {
	Survey
	machines Machines
}

// Look asks every host once.
func (l *Snapshotter) Look(ctx context.Context) Fleet {
	look := merge(l.Hosts, l.Collect(ctx), l.machines, l.Link.About)
	l.machines = look.machines
	return look
}

// Collect asks every host for its snapshot, in the order of Hosts.
func (a *Survey) Collect(ctx context.Context) snapshot.Cluster {
	results := Ask(ctx, a, a.Link.Snapshot)
	cluster := snapshot.Cluster{Hosts: make([]snapshot.Host, len(results))}
	for i, r := range results {
		cluster.Hosts[i] = snapshot.Host{Name: snapshot.Hostname(r.Host.Name), Labels: r.Host.Labels, Err: r.Err}
		if r.Err == nil {
			cluster.Hosts[i].Snapshot = r.Value
		}
	}
	return cluster
}

// Distinct leaves one result for each machine: of those with the same address and host key.
func Distinct[T any](a *Survey, results []remote.Result[T]) ([]remote.Result[T], []Duplicate) {
	identities := make([]identity, len(results))
	for i, r := range results {
		identities[i].name = r.Host.Name
		if r.Err == nil {
			identities[i].answered, identities[i].peer = true, a.Link.About(r.Host).Peer
		}
	}
	var kept []remote.Result[T]
	var list []Duplicate
	var machines Machines
	for i, first := range machines.group(identities) {
		if i == first {
			kept = append(kept, results[i])
			continue
		}
		list = append(list, machines.duplicate(identities[i].name, identities[first].name))
	}
	return kept, list
}
