package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/controller/handover"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Election is what etcd says about controllers that elect a leader. A nil Election wasn't asked.
type Election struct {
	Key        string
	Cluster    uint64           // of etcd
	Leader     *election.Leader // nil for none
	Epoch      uint64           // of the leader
	Registered []election.Registration
	Memory     time.Time // when the leader wrote its memory to etcd last; zero for never
	Err        error     // why etcd doesn't say it

	Members    int      // of etcd, that are named
	Silent     []string // why members don't answer, one line for each that doesn't
	OutOfSpace bool
	Health     string // the command by which an operator looks at the members
}

// etcdTimeout is how long etcd may take, with all of its members.
const etcdTimeout = 10 * time.Second

// AskEtcd asks for the election with a key and, meanwhile, how etcd is. Ask the hosts first: then an
// epoch that they know can't be later than the leader's.
func AskEtcd(ctx context.Context, config etcd.Config, key, health string) *Election {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	client := etcd.New(config)
	defer client.Close()
	e := &Election{Key: key, Members: len(config.Endpoints), Health: health}
	var asked sync.WaitGroup
	asked.Go(func() {
		for _, m := range client.Members(ctx, key) {
			if m.Err != nil && !etcd.Refused(m.Err) { // what it refuses, the answer about the election says
				e.Silent = append(e.Silent, m.Err.Error())
			}
		}
	})
	asked.Go(func() { e.OutOfSpace, _ = client.OutOfSpace(ctx) }) // or it isn't known
	e.Err = e.ask(ctx, client)
	asked.Wait()
	return e
}

func (e *Election) ask(ctx context.Context, client *etcd.Client) (err error) {
	if e.Leader, e.Epoch, e.Cluster, err = election.LeaderOf(ctx, client, e.Key); err != nil {
		return err
	}
	if e.Registered, err = election.Registered(ctx, client, e.Key); err != nil {
		return err
	}
	e.Memory, err = handover.Written(ctx, client, e.Key)
	if errors.Is(err, handover.ErrNone) {
		return nil
	}
	return err
}

// The rows about an election, in their order. There is one for each standby, and for each that is lost.
const (
	etcdRow    doctor.Name = "etcd"
	leaderRow  doctor.Name = "leader"
	standbyRow doctor.Name = "standby"
	lostRow    doctor.Name = "lost"
)

const (
	// late is after how many intervals without a cycle a leader is late, and lateAfter after how long at least.
	late      = 3
	lateAfter = 30 * time.Second
	// aheadAfter is by how much the clock of a leader may be ahead of this one.
	aheadAfter = 2 * time.Minute

	maxShown = 100 // characters of a controller's name
)

func quoted(name string) string { return text.Quoted(name, maxShown) }

// checks are the rows about the election. otherActs says that hosts let a controller act that isn't of it.
func (e *Election) checks(otherActs bool, now time.Time) []doctor.Check {
	if e == nil {
		return []doctor.Check{}
	}
	list := []doctor.Check{e.checkEtcd()}
	if e.Err != nil {
		return list
	}
	list = append(list, e.checkLeader(otherActs, now))
	standbys := e.with(func(r *election.Registration) bool { return !r.Lost && !e.isLeader(r) })
	for _, r := range standbys {
		list = append(list, e.checkStandby(r, now))
	}
	if e.Leader != nil && len(standbys) == 0 {
		list = append(list, problem(standbyRow, doctor.Warning, "no-standby", "there is no standby: if the leader fails, nothing is enforced",
			"start another controller with the same --leader on another jump host"))
	}
	for _, r := range e.with(func(r *election.Registration) bool { return r.Lost && !e.isLeader(r) }) {
		list = append(list, problem(lostRow, doctor.Warning, "controller-lost", quoted(r.Name)+" is lost: it was killed, or can't reach etcd",
			"look at `systemctl status genv-controller` on "+orItsHost(r)))
	}
	return list
}

func (e *Election) isLeader(r *election.Registration) bool {
	return e.Leader != nil && r.Candidate == e.Leader.Candidate
}

// with are the registered controllers that pass a test.
func (e *Election) with(test func(r *election.Registration) bool) (list []*election.Registration) {
	for i := range e.Registered {
		if test(&e.Registered[i]) {
			list = append(list, &e.Registered[i])
		}
	}
	return list
}

// leader is the registration of the leader; nil if it leads before it is registered, or is of another version.
func (e *Election) leader() *election.Registration {
	if list := e.with(e.isLeader); len(list) > 0 {
		return list[0]
	}
	return nil
}

func (e *Election) checkEtcd() doctor.Check {
	look := "look at `" + e.Health + "`"
	switch {
	case e.Err != nil && etcd.Refused(e.Err):
		return problem(etcdRow, doctor.Failed, "etcd-refuses", "etcd doesn't say which controller leads: "+e.Err.Error(),
			"correct --leader and the flags with it, or what etcd's user may read")
	case e.Err != nil:
		return problem(etcdRow, doctor.Failed, "etcd-silent", "etcd doesn't say which controller leads: "+e.Err.Error(), look)
	case e.OutOfSpace:
		return problem(etcdRow, doctor.Failed, "etcd-full", "etcd's space is used up: no other controller can take over, and the memory of the leader isn't kept",
			"free it: `"+e.freeSpace()+"`")
	case len(e.Silent) > 0:
		return problem(etcdRow, doctor.Warning, "etcd-members-silent", fmt.Sprintf("%d of %d members of etcd don't answer: %s", len(e.Silent), e.Members, strings.Join(e.Silent, "; ")),
			look+": without a majority of its members no controller can lead")
	}
	return doctor.Good(etcdRow, "%s for the election %s", members(e.Members), doctor.OneLine(e.Key))
}

func members(n int) string {
	if n == 1 {
		return "1 member answers"
	}
	return fmt.Sprintf("%d members answer", n)
}

// freeSpace is what an operator enters to free etcd's space and to end the alarm.
func (e *Election) freeSpace() string {
	return `e() { ` + strings.TrimSuffix(e.Health, " endpoint health") + ` "$@"; }; ` +
		`e compact --physical $(e endpoint status -w json | grep -o '"revision":[0-9]*' | head -n 1 | cut -d: -f2) && e defrag && e alarm disarm`
}

func (e *Election) checkLeader(otherActs bool, now time.Time) doctor.Check {
	if e.Leader == nil {
		return e.vacancy(otherActs)
	}
	r := e.leader()
	seen := quoted(e.Leader.Name) + " leads since " + e.Leader.Since.UTC().Format(time.RFC3339)
	if r == nil {
		return doctor.Good(leaderRow, "%s, with epoch %d", seen, e.Epoch)
	}
	if c := e.checkCycles(r, now); c.Status != doctor.OK {
		return c
	}
	if c := e.checkReach(r); c.Status != doctor.OK {
		return c
	}
	memory := "its memory isn't in etcd yet: a controller that takes over would start times again"
	if !e.Memory.IsZero() {
		memory = "its memory was written to etcd " + ago(e.Memory, now)
	}
	return doctor.Good(leaderRow, "%s, with epoch %d; %s; %s", seen, e.Epoch, about(r, now), memory)
}

// vacancy says that no controller leads, and what helps.
func (e *Election) vacancy(otherActs bool) doctor.Check {
	const vacant = "no controller leads, so nothing is enforced"
	is := func(detail, step string) doctor.Check {
		return problem(leaderRow, doctor.Failed, "no-leader", detail, step)
	}
	switch {
	case otherActs:
		return is("no controller of this election leads, so nothing is enforced except by the controllers that act on hosts by another right",
			"first decide which controllers are to act: hosts on which another one acts refuse those of this election")
	case len(e.with(func(r *election.Registration) bool { return !r.Lost })) > 0:
		return is(vacant, "wait for half a minute: a standby takes over; if none does, look at `journalctl -u genv-controller` on their machines")
	}
	return is(vacant, "start one: `systemctl start genv-controller`, and look at `journalctl -u genv-controller`")
}

// checkCycles says whether the leader is late.
func (e *Election) checkCycles(r *election.Registration, now time.Time) doctor.Check {
	limit := max(time.Duration(late*r.Interval*float64(time.Second)), lateAfter)
	is := func(status doctor.Status, cause doctor.Cause, detail string) doctor.Check {
		return problem(leaderRow, status, cause, detail, "look at `systemctl status genv-controller` on "+orItsHost(r)+", and compare the clocks")
	}
	switch age := now.Sub(r.Cycled); {
	case r.Cycled.IsZero() && now.Sub(e.Leader.Since) > limit:
		return is(doctor.Failed, "leader-late", "the leader has not completed a cycle since it became the leader")
	case r.Cycled.IsZero():
	case age > limit:
		return is(doctor.Failed, "leader-late", "the last cycle of the leader ended "+ago(r.Cycled, now))
	case -age > aheadAfter:
		return is(doctor.Warning, "leader-clock", "the clock of the leader is ahead of this one by more than 2 minutes, so whether its cycles are late isn't known")
	}
	return doctor.Good(leaderRow, "")
}

// checkReach says that the leader reaches less than half of its hosts, if a standby reaches more:
// hosts that are down aren't a reason to change the leader.
func (e *Election) checkReach(r *election.Registration) doctor.Check {
	if r.Answered == nil || *r.Answered*2 >= r.Hosts {
		return doctor.Good(leaderRow, "")
	}
	for _, o := range e.with(func(o *election.Registration) bool { return !o.Lost && o.Answered != nil && *o.Answered > *r.Answered }) {
		return problem(leaderRow, doctor.Warning, "leader-reaches-few", fmt.Sprintf("only %d of %d hosts answer the leader, and %d answer %s", *r.Answered, r.Hosts, *o.Answered, quoted(o.Name)),
			"if `journalctl -u genv-controller` on "+orItsHost(r)+" says that it can't connect to them, stop it: `systemctl stop genv-controller` there; the standby reaches them")
	}
	return doctor.Good(leaderRow, "")
}

// checkStandby says whether a standby would enforce something else than the leader.
func (e *Election) checkStandby(r *election.Registration, now time.Time) doctor.Check {
	leader := cmp.Or(e.leader(), new(election.Registration))
	differ := func(own, leads string) bool { return own != "" && leads != "" && own != leads }
	is := func(what, that, file string) doctor.Check {
		return problem(standbyRow, doctor.Warning, "standby-differs", fmt.Sprintf("%s has %s than the leader: if it leads, it enforces %s", quoted(r.Name), what, that),
			"use the same "+file+", then `systemctl reload genv-controller` on "+orItsHost(r))
	}
	switch {
	case differ(r.HostsDigest, leader.HostsDigest):
		return is("other hosts", "those", "hosts.yaml")
	case differ(r.Policy, leader.Policy):
		return is("another policy", "that", "policy.yaml")
	}
	return doctor.Good(standbyRow, "%s; %s", quoted(r.Name), about(r, now))
}

// about describes a controller that runs: its genv, its hosts, and its last cycle.
func about(r *election.Registration, now time.Time) string {
	hosts := fmt.Sprintf("%d hosts", r.Hosts)
	if r.Answered != nil {
		hosts = fmt.Sprintf("%d of %s answer", *r.Answered, hosts)
	}
	if r.Cycled.IsZero() {
		return fmt.Sprintf("genv %s, %s, no cycle yet", cmp.Or(doctor.OneLine(r.Version), "unknown"), hosts)
	}
	return fmt.Sprintf("genv %s, %s, the last cycle ended %s", cmp.Or(doctor.OneLine(r.Version), "unknown"), hosts, ago(r.Cycled, now))
}

// ago is how long ago something was; another clock may be ahead.
func ago(t, now time.Time) string { return text.ShortDuration(max(now.Sub(t), 0)) + " ago" }

func orItsHost(r *election.Registration) string { return cmp.Or(text.Printable(r.Host), "its host") }
