package enforcement

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/controller"
)

// replaced ends a run if most hosts refused it, since another controller acts on them. What a
// few hosts say does not end it, also while no other one can be reached: they may lie, and
// then nothing would be enforced on the others. A shard may have so few hosts that some are most:
// there all that answer must have refused it. It is an *command.ExitError.
func (l *loop) replaced(cycle *controller.Cycle) error {
	if !l.saidOlder && l.part != nil && refusedByElection(cycle) && l.part.Leads() {
		l.log.Warn().Msg("this controller leads, but most hosts have seen a later epoch of its election, so etcd was recreated or restored with the same cluster token. " +
			"Nothing is enforced on these hosts. Give etcd another --initial-cluster-token, or --leader another key, and start one controller once with --take-over")
		l.saidOlder = true
	}
	var refused, answered int
	var first error
	for i := range cycle.Cluster.Hosts {
		switch err := cycle.Cluster.Hosts[i].Err; {
		case err == nil:
			answered++
		case remote.ClassOf(err) == remote.Replaced && !l.part.replacedByElection(err):
			refused++
			first = cmp.Or(first, err)
		}
	}
	inShard := l.setup.Division != nil
	if 2*refused <= len(cycle.Cluster.Hosts) || inShard && answered > 0 {
		return nil
	}
	first = fmt.Errorf("%w: %s", first, remote.NextStepOf(first))
	return &command.ExitError{Code: command.ExitReplaced, Err: fmt.Errorf("%s refused this controller, so it ends: %w", render.Plural(refused, "host"), first)}
}

// refusedByElection reports whether most hosts refused an elected controller because of a later
// epoch. If it leads nevertheless, etcd has lost its revisions, and counts again from a lower one.
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
