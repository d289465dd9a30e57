package enforcement

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
)

// replaced ends a run if most hosts refused it, since another controller acts on them. What a
// few hosts say does not end it, also while no other one can be reached: they may lie, and
// then nothing would be enforced on the others. It is an *command.ExitError.
func (l *loop) replaced(cycle *controller.Cycle) error {
	l.sayOlder(cycle)
	var refused int
	var first error
	for i := range cycle.Cluster.Hosts {
		err := cycle.Cluster.Hosts[i].Err
		if remote.ClassOf(err) == remote.Replaced && !l.part.replacedByElection(err) {
			refused++
			first = cmp.Or(first, err)
		}
	}
	if 2*refused <= len(cycle.Cluster.Hosts) {
		return nil
	}
	first = fmt.Errorf("%w: %s", first, remote.NextStepOf(first))
	return &command.ExitError{Code: command.ExitReplaced, Err: fmt.Errorf("%s refused this controller, so it ends: %w", render.Plural(refused, "host"), first)}
}

// older is about hosts that refuse a leader because of a later epoch of its election.
type older struct {
	epoch uint64    // of the leader
	since time.Time // since when most hosts do; zero if they don't
	said  bool
}

// sayOlder warns, once, of an etcd that counts again from a lower revision: most hosts refuse this controller
// because of a later epoch, and etcd confirms that it leads. Until etcd has confirmed that with a request from
// after the refusal, which takes no longer than the lease, another controller may lead: this one may have been
// stopped for a while, or a member of etcd.
func (l *loop) sayOlder(cycle *controller.Cycle) {
	switch {
	case l.part == nil || l.older.said:
		return
	case !l.part.LeadsWith(l.part.epoch) || !refusedByElection(cycle):
		l.older = older{}
		return
	case l.older.since.IsZero() || l.older.epoch != l.part.epoch:
		l.older = older{epoch: l.part.epoch, since: l.program.Now()}
	}
	if l.part.Status().Answered.Sub(l.older.since) < election.TTL {
		return
	}
	l.older.said = true
	l.log.Warn().Msg("this controller leads, but most hosts have seen a later epoch of its election, so etcd was recreated or restored with the same cluster token. " +
		"Nothing is enforced on these hosts. Give etcd another --initial-cluster-token, or --leader another key, and start one controller once with --take-over")
}

// refusedByElection reports whether most hosts refused an elected controller because of a later
// epoch.
func refusedByElection(cycle *controller.Cycle) bool {
	var refused int
	for i := range cycle.Cluster.Hosts {
		err := cycle.Cluster.Hosts[i].Err
		if remote.ClassOf(err) == remote.Replaced && strings.Contains(err.Error(), fence.Replaced) {
			refused++
		}
	}
	return 2*refused > len(cycle.Cluster.Hosts)
}

// sayUnfenced says, once, on which hosts a controller that was replaced could go on acting.
func (l *loop) sayUnfenced() {
	if l.claim == nil || l.saidUnfenced {
		return
	}
	var names []string
	for _, h := range l.setup.Hosts {
		if a := l.setup.Link.About(h); a.Can.Execute && !a.Can.Fence {
			names = append(names, h.Name)
		}
	}
	if len(names) > 0 {
		l.log.Warn().Str("hosts", render.Hosts(names)).Msg("the genv of these hosts can't refuse a controller that was replaced: run one controller only")
	}
	l.saidUnfenced = true
}
