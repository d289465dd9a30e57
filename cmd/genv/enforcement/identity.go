package enforcement

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// runIdentity is how hosts and other controllers know a run.
type runIdentity struct {
	ID       string // survives a restart if the run has a state folder
	Hostname string
	Account  string
	Person   string // who started it, if not Account, as with sudo
	PID      int
	Start    string // unique for each run
}

// identityOf uses the state folder's ID, if there is one. A single cycle beside a loop needs no lasting ID.
func identityOf(ctx context.Context, folder *statedir.Folder, loops bool) (runIdentity, error) {
	self := runIdentity{PID: os.Getpid(), Start: rand.Text()}
	if folder != nil {
		id, err := folder.ID()
		if err != nil && loops {
			return self, err
		}
		self.ID = id
	}
	self.ID = cmp.Or(self.ID, rand.Text())
	self.Hostname, _ = os.Hostname() // empty for unknown
	who := Self(ctx)
	self.Account = accountOf(who.Name, who.UID)
	if who.Login != nil {
		self.Person = accountOf(who.LoginName, *who.Login)
	}
	return self, nil
}

func accountOf(name snapshot.Username, uid snapshot.UID) string {
	return cmp.Or(string(name), fmt.Sprintf("uid-%d", uid))
}

func (o *Options) announces() bool { return !o.DryRun && !o.LookOnly && o.Announce != nil }

// announce returns how guards name the run; empty for nothing.
func (l *loop) announce(options *Options) (id, by string) {
	if !options.announces() || !l.acts() {
		return "", ""
	}
	if l.lease != nil {
		l.lease.Seconds = int(leaseIntervals * options.Interval / time.Second)
	}
	options.Announce(l.self.ID, l.lease)
	return l.self.ID, fmt.Sprintf("genv remote enforce (%s on %s)", l.self.Account, l.self.Hostname)
}

const (
	leaseIntervals = 3  // length of a lease; hosts give at least a minute
	maxPerson      = 64 // bytes of an account in a lease: hosts take 256, and the rest may need 176
)

func (r *runIdentity) name() string {
	return fmt.Sprintf("%s on %s, process %d", text.Cut(cmp.Or(r.Person, r.Account), maxPerson), r.Hostname, r.PID)
}

func (r *runIdentity) lease(who string, epoch uint64, takeOver bool) *fence.LeaseRequest {
	return &fence.LeaseRequest{
		Who: who, Epoch: epoch, Controller: r.ID + " " + r.Hostname, Name: r.name(), Start: r.Start, TakeOver: takeOver,
	}
}

const needsFolder = " needs a state folder, by which hosts know this controller again: add --state-dir DIR"

// leaseOf is a run's request for a lease. The state folder counts the starts of a loop. A single cycle, or a loop
// without a folder, gets no lease: hosts refuse it or let it act.
func leaseOf(folder *statedir.Folder, options *Options, self *runIdentity) (*fence.LeaseRequest, error) {
	switch {
	case options.TakeOver && !options.loops():
		return nil, command.WrongFlag("take-over", ": a single cycle takes no host over. "+
			"Leave out --interval 0 and --cycles 1, and end the loop with Ctrl-C after its first cycle")
	case options.TakeOver && folder == nil:
		return nil, command.WrongFlag("take-over", needsFolder)
	case folder == nil || !options.loops():
		return self.lease(fence.Run(self.ID), 1, false), nil
	}
	epoch, err := folder.NextEpoch()
	if err != nil {
		return nil, err
	}
	return self.lease(fence.Folder(self.ID), epoch, options.TakeOver), nil
}

// readers is the group that may read the record and all that a controller with an account serves; 0 for none.
func (o *Options) readers(getenv func(string) string) int {
	if account, err := command.Account(getenv); err != nil || account == "" || o.LocalName != "" {
		return 0
	}
	return socket.GroupID()
}

// Self is the person who runs this program.
func Self(ctx context.Context) operator.Author {
	return live.PersonOf(ctx, socket.Self(), system.Username)
}

// warnOfOlderEtcd warns once of an etcd that counts again from a lower revision. Most hosts refuse this controller for
// a later epoch, and etcd has since confirmed that it leads. Without that confirmation, another controller may lead.
func (l *loop) warnOfOlderEtcd(round *controller.Round) {
	switch {
	case l.part == nil || l.warnedOfOlderEtcd:
		return
	case l.mayAct() != nil || mostRefused(round, isLater) == nil:
		l.laterSince = time.Time{}
		return
	case l.laterSince.IsZero():
		l.laterSince = l.program.Now()
	}
	if l.part.Status().Answered.Sub(l.laterSince) < election.TTL {
		return
	}
	l.warnedOfOlderEtcd = true
	l.log.Warn().Msg("this controller leads, but most hosts have seen a later epoch of its election, " +
		"so etcd was recreated or restored with the same cluster token. Nothing is enforced on these hosts. " +
		"Give etcd another --initial-cluster-token, or --leader another key, and start one controller once with " +
		"--take-over")
}

func isLater(err error) bool { return errors.Is(err, agent.ErrLater) }

// mostRefused is nil if most hosts didn't refuse this controller.
func mostRefused(round *controller.Round, refused func(error) bool) (list []error) {
	for i := range round.Cluster.Hosts {
		if err := round.Cluster.Hosts[i].Err; refused(err) {
			list = append(list, err)
		}
	}
	if 2*len(list) <= len(round.Cluster.Hosts) {
		return nil
	}
	return list
}

// replaced ends a run, with a *command.ExitError, if most hosts refused it for another controller. A few hosts don't
// end it, even if all others are unreachable: they may lie.
func (l *loop) replaced(round *controller.Round) error {
	l.warnOfOlderEtcd(round)
	refused := mostRefused(round, func(err error) bool { // after a later epoch, the election ends the term
		return remote.ClassOf(err) == remote.Replaced && (l.part == nil || !isLater(err))
	})
	if refused == nil {
		return nil
	}
	return &command.ExitError{Code: command.ExitReplaced, Err: fmt.Errorf(
		"%s refused this controller, so it ends: %w: %s", text.Plural(len(refused), "host"), refused[0],
		remote.NextStepOf(refused[0]))}
}

func (l *loop) warnOfUnfenced() {
	if l.lease == nil || l.warnedOfUnfenced || !l.options.loops() {
		return
	}
	var names []string
	for _, h := range l.options.Hosts {
		if a := l.options.Link.About(h); a.Can(agent.RequestExecute) && !a.Can(agent.CapabilityFence) {
			names = append(names, h.Name)
		}
	}
	if len(names) > 0 {
		l.log.Warn().Str("hosts", render.Hosts(names)).
			Msg("the genv of these hosts can't refuse a controller that was replaced: run one controller only")
	}
	l.warnedOfUnfenced = true
}
