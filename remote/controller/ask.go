package controller

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// Link is what the controller needs of the genv on its hosts; *agent.Pool and
// agent.Commands provide it. Errors are *remote.Error.
type Link interface {
	// Snapshot asks a host for its snapshot.
	Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error)
	// Execute has a host carry out an order, once. An error of the class
	// OutcomeUnknown means that it may have been carried out, in part or whole.
	Execute(ctx context.Context, host remote.Host, o order.Order) (agent.Execution, error)
	// Notify shows messages to users of a host, and returns what became of each.
	// agent.ErrCannotNotify: the host can't do it.
	Notify(ctx context.Context, host remote.Host, messages []agent.Message) ([]agent.Shown, error)
	// Guard gives or renews the order for a host's kernel guard. agent.ErrCannotGuard: the
	// host has none.
	Guard(ctx context.Context, host remote.Host, request agent.GuardRequest) (agent.GuardAnswer, error)
	// About returns what is known about a host without asking it.
	About(host remote.Host) agent.About
}

// Asker asks all hosts of a fleet, and changes none.
type Asker struct {
	Hosts  []remote.Host
	Link   Link
	Fanout int // hosts at a time
	// StopAtFailure ends the questions at the first host that fails. A Controller then
	// ends the cycle, and does nothing on any host.
	StopAtFailure bool
	// Progress, if set, is called with the number of hosts that answered or failed,
	// first of all with 0. The calls come from many goroutines.
	Progress func(done, total int)
}

// errStopped is the cause for hosts that were not asked to the end because
// another one failed under StopAtFailure.
var errStopped = errors.New("another host failed")

// Ask puts a question to every host of an Asker. The results are in the order of Hosts.
func Ask[T any](ctx context.Context, a *Asker, question func(context.Context, remote.Host) (T, error)) []remote.Result[T] {
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

// Collect asks every host for its snapshot, in the order of Hosts.
func (a *Asker) Collect(ctx context.Context) snapshot.Cluster {
	results := Ask(ctx, a, a.Link.Snapshot)
	cluster := snapshot.Cluster{Hosts: make([]snapshot.Host, len(results))}
	for i, r := range results {
		cluster.Hosts[i] = snapshot.Host{Name: snapshot.Hostname(r.Host.Name), Labels: r.Host.Labels, Snapshot: r.Value, Err: r.Err}
		if r.Err != nil {
			cluster.Hosts[i].Snapshot = nil
		}
	}
	return cluster
}

// Snapshotter collects snapshots again and again, and judges nothing: for commands that only
// show what is there. It is not safe for concurrent use.
type Snapshotter struct {
	Asker
	machines Machines
}

// Look is what a Snapshotter saw.
type Look struct {
	Cluster snapshot.Cluster
	// Duplicates are the names that are left out of Cluster because another name leads to
	// the same machine.
	Duplicates []Duplicate
	// Via is how each host that answered was spoken with, where the Link knows.
	Via map[snapshot.Hostname]agent.Via
}

// Look asks every host once.
func (l *Snapshotter) Look(ctx context.Context) Look {
	fleet := merge(l.Hosts, l.Collect(ctx), l.machines, l.Link.About)
	l.machines = fleet.machines
	return Look{Cluster: fleet.cluster, Duplicates: fleet.duplicates, Via: fleet.via}
}
