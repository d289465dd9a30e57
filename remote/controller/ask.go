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

// Link sends requests to the genv on hosts; *agent.Pool is one. Errors are *remote.Error.
type Link interface {
	Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error)
	// Execute has a host carry out an order, once. After remote.OutcomeUnknown it may have done all or part of it.
	Execute(ctx context.Context, host remote.Host, o order.Order) (agent.Execution, error)
	// Notify shows messages to users, and returns a receipt for each, or agent.ErrCannotNotify.
	Notify(ctx context.Context, host remote.Host, messages []agent.Message) ([]agent.Receipt, error)
	// Guard gives or renews the order for a host's kernel guard. It returns agent.ErrCannotGuard if there is none.
	Guard(ctx context.Context, host remote.Host, request agent.GuardRequest) (agent.GuardAnswer, error)
	// About returns what earlier answers told about a host.
	About(host remote.Host) agent.About
}

// Polled hides that a Link is a wake.Link, so that the loop waits for no events of hosts.
type Polled struct{ Link }

// Survey asks all hosts of a fleet. It changes none.
type Survey struct {
	Hosts  []remote.Host
	Link   Link
	Fanout int // hosts at a time
	// StopAtFailure stops asking at the first host that fails. A Controller then does nothing on any host.
	StopAtFailure bool
	// Progress, if set, is called from many goroutines with the number of hosts that answered or failed, first with 0.
	Progress func(done, total int)
}

// asking asks hosts in the background: none twice at the same time, but for what watch asks.
type asking struct {
	ctx    context.Context //nolint:containedctx // it lives as long as the loop
	cancel context.CancelFunc

	answers mailbox[hostAnswer]
	hosts   map[string]bool // that are being asked, by name; true for those asked at the last tick
	open    int             // how many were asked at the last tick and have not answered

	watch *wake.Watch                // asks hosts when something happens there; nil for none
	again map[snapshot.Hostname]bool // hosts that were asked again since the last tick
}

// tick asks all hosts that are not being asked. Those without a turn come first.
func (a *asking) tick(survey Survey, now func() time.Time, askRound int, interval time.Duration) {
	turns := a.turns(survey.Hosts, interval)
	survey.Hosts = slices.DeleteFunc(slices.Clone(survey.Hosts), func(h remote.Host) bool {
		_, asked := a.hosts[h.Name]
		return asked
	})
	slices.SortStableFunc(survey.Hosts, func(a, b remote.Host) int { return turns[a.Name].Compare(turns[b.Name]) })
	for name := range a.hosts {
		a.hosts[name] = false
	}
	a.open, a.again = len(survey.Hosts), make(map[snapshot.Hostname]bool)
	a.ask(survey, now, askRound, true, turns)
}

// turns are when a tick asks the hosts that report events. They can wait, since their events show what happens there.
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

// ask asks hosts. For each it puts an answer, if only that the host was not asked.
func (a *asking) ask(survey Survey, now func() time.Time, askRound int, atTick bool, turns map[string]time.Time) {
	for _, h := range survey.Hosts {
		a.hosts[h.Name] = atTick
	}
	a.answers.work.Go(func() {
		results := Ask(a.ctx, &survey, func(ctx context.Context, h remote.Host) (begun bool, err error) {
			if turn, waits := turns[h.Name]; waits {
				remote.Sleep(ctx, time.Until(turn))
			}
			askedAt, start := now(), time.Now()
			s, err := survey.Link.Snapshot(ctx, h)
			came := time.Now()
			a.answers.put(hostAnswer{
				name: h.Name, askedAt: askedAt, came: came, took: came.Sub(start), askRound: askRound, snapshot: s, err: err,
			})
			return true, err
		})
		for _, r := range results {
			if !r.Value {
				a.answers.put(hostAnswer{name: r.Host.Name, askedAt: now(), came: time.Now(), askRound: askRound, err: r.Err})
			}
		}
	})
}

var errStopped = errors.New("another host failed")

// Ask calls question for every host, and returns the results in the order of Hosts.
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

func (a *asking) noteAnswer(answer *hostAnswer) (atTick bool) {
	atTick = a.hosts[answer.name]
	delete(a.hosts, answer.name)
	if atTick {
		a.open--
	}
	return atTick
}

// askAgain asks hosts at once, under the names that answered; with once, each at most once before the next tick.
func (a *asking) askAgain(
	survey Survey, now func() time.Time, fleet *knownFleet, names []snapshot.Hostname, once bool,
) {
	slices.Sort(names)
	survey.Hosts, survey.Progress, survey.StopAtFailure = nil, nil, false
	for _, name := range slices.Compact(names) {
		h := fleet.reached[name]
		if _, asked := a.hosts[h.Name]; asked || once && a.again[name] {
			continue
		}
		a.again[name] = true
		survey.Hosts = append(survey.Hosts, h)
	}
	if len(survey.Hosts) > 0 {
		a.ask(survey, now, fleet.askRound, false, nil)
	}
}

// listen waits for events of the hosts that answered. With a nil link it does nothing.
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

// mailbox collects results of goroutines, which don't wait until they are taken.
type mailbox[T any] struct {
	work sync.WaitGroup // the goroutines

	mu     sync.Mutex
	list   []T
	signal chan struct{}
}

// ready has a value after put; take may have been called since.
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
	default: // the signal is set already
	}
}

func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.list
	m.list = nil
	return list
}

// Snapshotter collects snapshots repeatedly. It is not safe for concurrent use.
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

// Collect asks every host for its snapshot. The cluster has the order of Hosts.
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

// Distinct keeps one result for each machine: hosts with the same address and host key are one.
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
