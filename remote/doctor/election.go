package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Election is what etcd says about controllers that elect a leader; nil if not asked.
type Election struct {
	Key        string
	Cluster    uint64           // of etcd
	Leader     *election.Leader // nil: none
	Epoch      uint64           // of the leader
	Registered []election.Registration
	Memory     time.Time // last write of the leader's memory to etcd; zero: never
	Err        error     // why etcd doesn't say it

	Members    int      // configured for etcd
	Silent     []string // errors of members that don't answer, one line each
	OutOfSpace bool
	Health     string // the command to examine the members
}

// AskEtcd asks about an election and etcd itself, within 10 s. Ask the hosts first: then they can't know a later epoch
// than the leader's.
func AskEtcd(ctx context.Context, config etcd.Config, key, health string) *Election {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := etcd.New(config)
	defer client.Close()
	e := &Election{Key: key, Members: len(config.Endpoints), Health: health}
	var asked sync.WaitGroup
	asked.Go(func() {
		for _, m := range client.Members(ctx, key) {
			if m.Err != nil && !etcd.Refused(m.Err) { // a refusal also fails the question about the election
				e.Silent = append(e.Silent, m.Err.Error())
			}
		}
	})
	asked.Go(func() { e.OutOfSpace, _ = client.OutOfSpace(ctx) }) // else unknown
	e.Err = e.ask(ctx, client)
	asked.Wait()
	return e
}

func (e *Election) ask(ctx context.Context, client *etcd.Gateway) (err error) {
	if e.Leader, e.Epoch, e.Cluster, err = election.LeaderOf(ctx, client, e.Key); err != nil {
		return err
	}
	if e.Registered, err = election.Registered(ctx, client, e.Key); err != nil {
		return err
	}
	e.Memory, err = statedir.Written(ctx, client, e.Key)
	return err
}

// Rows about an election, in order: one for each standby and each lost controller.
const (
	etcdRow    doctor.Name = "etcd"
	leaderRow  doctor.Name = "leader"
	standbyRow doctor.Name = "standby"
	lostRow    doctor.Name = "lost"
)

func quoted(name string) string { return text.Quoted(name, 100) }

func (e *Election) checks(now time.Time) []doctor.Check {
	if e == nil {
		return []doctor.Check{}
	}
	list := []doctor.Check{e.checkEtcd()}
	if e.Err != nil {
		return list
	}
	var standbys, lost []doctor.Check
	leader := new(election.Registration) // unnamed if not registered yet, or of another version
	if i := slices.IndexFunc(e.Registered, e.isLeader); i >= 0 {
		leader = &e.Registered[i]
	}
	for i := range e.Registered {
		switch r := &e.Registered[i]; {
		case r == leader:
		case r.Lost:
			lost = append(lost, doctor.Problem(lostRow, "controller-lost", "%s was killed, or can't reach etcd",
				quoted(r.Name)))
		default:
			standbys = append(standbys, checkStandby(r, leader, now))
		}
	}
	if e.Leader != nil && len(standbys) == 0 {
		standbys = append(standbys, doctor.Problem(standbyRow, "no-standby", "no standby would replace the leader"))
	}
	return slices.Concat(list, []doctor.Check{e.checkLeader(leader, now)}, standbys, lost)
}

func (e *Election) isLeader(r election.Registration) bool {
	return e.Leader != nil && r.Candidate == e.Leader.Candidate
}

func (e *Election) checkEtcd() doctor.Check {
	const unsaid = "etcd doesn't say which controller leads: %v"
	look := "run `" + e.Health + "`"
	fine := fmt.Sprintf("etcd answers (%s) for the election %s", text.Plural(e.Members, "member"), e.Key)
	return doctor.Judge(etcdRow, fine,
		doctor.If(e.Err != nil && etcd.Refused(e.Err), "etcd-refuses", unsaid, e.Err),
		doctor.If(e.Err != nil, "etcd-silent", unsaid, e.Err).Next(look),
		doctor.If(e.OutOfSpace, "etcd-full", "etcd's space is used up: no other controller can take over"),
		doctor.If(len(e.Silent) > 0, "etcd-members-silent", "%d of %d members don't answer: %s", len(e.Silent),
			e.Members, strings.Join(e.Silent, "; ")).Next(look))
}

func (e *Election) checkLeader(r *election.Registration, now time.Time) doctor.Check {
	if e.Leader == nil {
		return doctor.Problem(leaderRow, "no-leader", "no controller leads, so nothing is enforced")
	}
	seen := fmt.Sprintf("%s leads since %s, with epoch %d", quoted(e.Leader.Name),
		e.Leader.Since.UTC().Format(time.RFC3339), e.Epoch)
	if r.Name == "" {
		return doctor.Good(leaderRow, "%s", seen)
	}
	memory := "its memory isn't in etcd yet"
	if !e.Memory.IsZero() {
		memory = "memory in etcd of " + ago(e.Memory, now)
	}
	limit := max(time.Duration(3*r.Interval*float64(time.Second)), 30*time.Second) // without a cycle
	last, what := r.Cycled, "the last cycle of the leader ended"
	if last.IsZero() {
		last, what = e.Leader.Since, "the leader has completed no cycle: it began to lead"
	}
	return doctor.Judge(leaderRow, fmt.Sprintf("%s; %s; %s", seen, about(r, now), memory),
		doctor.If(now.Sub(last) > limit, "leader-late", "%s %s", what, ago(last, now)),
		doctor.If(last.Sub(now) > 2*time.Minute, "leader-clock", "the leader's clock is over 2 minutes ahead of this one"))
}

// checkStandby says whether a standby would enforce something else.
func checkStandby(r, leader *election.Registration, now time.Time) doctor.Check {
	differ := func(own, leads, what string) doctor.Check {
		return doctor.If(own != "" && leads != "" && own != leads, "standby-differs", "%s has %s than the leader",
			quoted(r.Name), what)
	}
	return doctor.Judge(standbyRow, fmt.Sprintf("%s; %s", quoted(r.Name), about(r, now)),
		differ(r.HostsDigest, leader.HostsDigest, "other hosts"),
		differ(r.Policy, leader.Policy, "another policy"))
}

func about(r *election.Registration, now time.Time) string {
	hosts := fmt.Sprintf("%d hosts", r.Hosts)
	if r.Answered != nil {
		hosts = fmt.Sprintf("%d of %s answer", *r.Answered, hosts)
	}
	cycle := "no cycle yet"
	if !r.Cycled.IsZero() {
		cycle = "the last cycle ended " + ago(r.Cycled, now)
	}
	return fmt.Sprintf("genv %s, %s, %s", cmp.Or(r.Version, "unknown"), hosts, cycle)
}

func ago(t, now time.Time) string { return text.ShortDuration(max(now.Sub(t), 0)) + " ago" }

func (e *examination) askActing(ctx context.Context) {
	hasFailed := func(c doctor.Check) bool { return c.Status == doctor.Failed }
	switch {
	case e.Acting == nil || slices.ContainsFunc(e.Checks, hasFailed):
	case e.Check(doctor.Sudo).Cause == "no-root":
		e.add(doctor.Unknown(doctor.Controller, "only root's genv says it"))
	case e.Genv.Protocol == 0: // genv 1.4.3 can't say it
		e.acting = &agent.Acting{}
	default:
		answer, err := e.Acting(ctx, e.host)
		if err != nil {
			e.add(doctor.Unknown(doctor.Controller, "%v", err))
			return
		}
		e.acting = &answer
		e.add(doctor.WithTrial(*e.Check(doctor.Genv), answer.Trial))
	}
}

func (d *FleetReport) judgeControllers(e *Election) {
	source := sourceOf(d.Hosts, e)
	for i := range d.Hosts {
		if h := &d.Hosts[i]; h.acting != nil {
			*h.Check(doctor.Controller) = checkActing(h.acting, e, source)
			h.Status = doctor.Overall(h.Checks)
		}
	}
	d.Controllers = e.checks(d.Time)
}

// sourceOf is who should count hosts' epochs: the election or, without one, the most frequent.
func sourceOf(hosts []HostReport, e *Election) (most string) {
	if e != nil {
		return fence.Election(e.Cluster, e.Key)
	}
	count := map[string]int{}
	for _, h := range hosts {
		if acts(h.acting) {
			who := h.acting.Lease.Who
			if count[who]++; count[who] > count[most] {
				most = who
			}
		}
	}
	return most
}

func acts(a *agent.Acting) bool { return a != nil && a.Lease != nil && !a.Lease.GivenBack }

func checkActing(a *agent.Acting, e *Election, source string) doctor.Check {
	n, seen := cmp.Or(a.Lease, new(fence.Lease)), describe(a.Lease)
	own, elects := n.Who == source, e != nil
	leads := elects && e.Leader != nil
	outside := acts(a) && !own
	c := doctor.Judge(doctor.Controller, seen,
		doctor.If(a.Unknown != "", "controller-unknown", "no controller may act: %s", a.Unknown),
		doctor.If(!a.Refuses && elects, "genv-refuses-none", "its genv can't refuse a replaced controller"),
		doctor.If(!a.Refuses, "", "its genv lets each controller act"),
		doctor.If(elects && e.Err != nil, doctor.Unsure, "%s; only etcd says whether it should", seen),
		doctor.If(own && leads && n.Epoch > e.Epoch, "later-epoch",
			"the host refuses the leader: it knows a later epoch"),
		doctor.If(acts(a) && own, "", "%s", seen),
		doctor.If(outside && !elects, "other-controller", "%s, and another one on other hosts", seen),
		doctor.If(outside && leads && e.Leader.Name == n.Name, "other-cluster",
			"the leader acts with an epoch of another etcd"),
		doctor.If(outside, "other-controller", "%s: the host refuses this election's controllers", seen),
		doctor.If(elects && n.Elected() && !own, "other-election", "%s: the host waits for its next leader", seen),
		doctor.If(leads, "no-controller", "%s, so nothing is enforced here", seen))
	if c.Cause == "other-controller" && !elects { // it may be intended
		c.Status = doctor.Warning
	}
	return c
}

func describe(n *fence.Lease) string {
	if n == nil {
		return "no controller has acted yet"
	}
	origin, state := "its state folder", "acts: "
	if n.Elected() {
		origin = "etcd"
	}
	if n.GivenBack {
		state = "no controller acts; the last one was "
	}
	return fmt.Sprintf("%s%s, since %s by epoch %d of %s", state, quoted(cmp.Or(n.Name, n.Controller)),
		n.Since.UTC().Format(time.RFC3339), n.Epoch, origin)
}
