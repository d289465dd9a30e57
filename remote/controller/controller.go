package controller

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller/wake"
	"github.com/seed-3119e985/genv/snapshot"
)

// Options are what a controller is told: the hosts, the policy, and what it does with what it finds.
type Options struct {
	Asker
	Policy enforce.Policy
	// DryRun does everything except change hosts.
	DryRun bool
	Now    func() time.Time

	// Audit keeps the record; nil for none. What cannot be recorded is not
	// done, unless ActUnrecorded.
	Audit         Recorder
	ActUnrecorded bool
	// Sinks get the events of every cycle that counts, in their order.
	Sinks []Sink
	// Store, if set, keeps the memory: before orders are sent, when operators ask for something, and otherwise every
	// 10 seconds. OnSave, if set, is told in the background what came of each time.
	Store  Store
	OnSave func(error)
	// Mailer sends users mail; nil for none. NoTerminals has nothing shown on their terminals.
	Mailer      Mailer
	NoTerminals bool
	// ID and By are how guards of hosts know this controller, and what they call it; without an
	// ID it is known by its run.
	ID, By string
	// Events, if set, has hosts judged between two cycles when something happened there.
	Events Events
	// Standby says that another controller acts: this one only looks, for viewers. It goes with DryRun.
	Standby bool
}

// Controller enforces a policy on a fleet.
type Controller struct {
	Options
	Memory FleetMemory

	run        string // the name of this run in the log
	number     int    // of the last full cycle
	visits     dispatcher
	sentLog    Recorder // of the visits; nil for none
	unrecorded string   // why the record could not be kept in the last cycle
	unsaved    bool     // the memory changed since it was saved
	saved      time.Time
	writer     *stateWriter // nil before the first save

	last     *Cycle        // the last one that judged
	reloaded bool          // the hosts may be others than in last
	interval time.Duration // between cycles
	queue    *Queue        // nil for none
	carried  Cycle         // what ended between two cycles, for the next one
	between  between

	recorded Budget[snapshot.Username]
}

// Configure has a controller go on with other options, and with the orders under way. It must not be
// called while a cycle runs.
func (c *Controller) Configure(options Options) {
	c.stopEvents()
	c.Options, c.reloaded = options, true
}

// Cycle collects, judges and acts once, and waits for the outcome.
func (c *Controller) Cycle(ctx context.Context, number int) Cycle {
	c.number = number
	cycle := c.begin(ctx)
	c.await(ctx, &cycle, time.Time{}, 0)
	c.writer.Wait()
	return cycle
}

// begin asks all hosts, judges what they say, and acts on it.
func (c *Controller) begin(ctx context.Context) Cycle {
	cycle := c.newCycle()
	machines := c.snapshot(ctx, &cycle)
	if over(ctx) || c.StopAtFailure && len(cycle.Cluster.Failed()) > 0 {
		cycle.Stopped = true
		return cycle
	}
	if c.Standby {
		c.Memory.Machines = machines
		c.last, c.reloaded = &cycle, false
		c.emit(&cycle, nil)
		return cycle
	}
	next, events, errands := c.judge(&cycle)
	next.Machines = machines
	c.last, c.reloaded = &cycle, false
	c.waitForEvents(&cycle)
	c.act(ctx, &cycle, next, events, errands)
	return cycle
}

// newCycle has what came of earlier cycles.
func (c *Controller) newCycle() Cycle {
	if c.run == "" {
		c.run = rand.Text()[:8]
	}
	cycle := Cycle{Run: c.run, Number: c.number, Start: c.Now(), DryRun: c.DryRun, Standby: c.Standby}
	c.takeCarried(&cycle)
	c.learn(&cycle, c.visits.ended())
	cycle.Earlier, c.between.count = c.between.count, 0
	return cycle
}

// snapshot asks all hosts, and finds out which names are one machine.
func (c *Controller) snapshot(ctx context.Context, cycle *Cycle) Machines {
	link := c.newPacedLink()
	fleet := merge(&c.Asker, c.collect(ctx, link), c.Memory.Machines)
	cycle.Cluster, cycle.Duplicates, cycle.answered = fleet.cluster, fleet.duplicates, fleet.answered
	cycle.Via, cycle.askedAt = fleet.via, link.at
	return fleet.machines
}

// judge applies the policy. It returns the next memory, and what hosts are asked besides their orders. Both count if the
// plan is acted on.
func (c *Controller) judge(cycle *Cycle) (next FleetMemory, events []enforce.Event, errands []errand) {
	now := c.Now()
	c.expire(now)
	c.Memory.Operator.Exemptions = c.Memory.Operator.Exemptions.Follow(cycle.Cluster)
	cycle.operator(c.Memory.Operator)
	policy := c.Memory.Operator.Policy(c.Policy, now)
	next = c.Memory
	cycle.Plan, next.Rules, events = enforce.Judge(policy, cycle.Cluster, c.Memory.Rules, now)
	errands, ofGuards := c.planGuards(cycle, policy, &next, now)
	return next, append(ofGuards, events...), errands
}

// over reports whether nothing may be begun any more: the run ends, or this controller doesn't lead.
func over(ctx context.Context) bool { return ctx.Err() != nil || remote.MayBegin(ctx) != nil }

// collect asks every host. Meanwhile it takes the actions of operators, and judges hosts on
// which something has happened.
func (c *Controller) collect(ctx context.Context, link *pacedLink) snapshot.Cluster {
	asker := c.Asker
	asker.Link = link
	if c.queue == nil && c.Events == nil {
		return asker.Collect(ctx)
	}
	collected := make(chan snapshot.Cluster, 1)
	go func() { collected <- asker.Collect(ctx) }()
	for {
		select {
		case cluster := <-collected:
			link.renew(c.Hosts, &cluster)
			return cluster
		case r := <-c.queue.waiting():
			c.operate(ctx, r)
		case looks := <-c.between.wake.Looks():
			link.woke(looks)
			c.early(ctx, looks)
		}
	}
}

// act records the plan and what was found, remembers it, sends the orders, the messages to users and other errands, and
// passes the events on. If it can't be recorded, nothing of that is done, and the cycle does not count. In a dry run there
// is nothing to send.
func (c *Controller) act(ctx context.Context, cycle *Cycle, next FleetMemory, events []enforce.Event, errands []errand) {
	orders := ordersOf(cycle)
	if err := c.recordFirst(cycle, events, itemsOf(orders)); err != nil {
		return
	}
	c.Memory = next
	messages := c.tell(cycle, events, orders)
	errands = append(errands, messages...)
	for _, o := range orders {
		c.Memory.Rules = c.Memory.Rules.Begin(*o.OfHost, c.Now())
		errands, events = append(errands, o), append(events, o.acting())
	}
	c.send(ctx, cycle, errands)
	c.emit(cycle, events)
}

// tell is what users are told of a cycle: on terminals, nothing in a dry run, and by mail.
func (c *Controller) tell(cycle *Cycle, events []enforce.Event, orders []*sentOrder) (messages []errand) {
	now, owners := c.Now(), notify.NewOwners(cycle.Cluster)
	list := make(map[snapshot.Hostname][]notify.Notification)
	addNotifications(list, events, func(f *enforce.Finding) []notify.Notification { return notify.Notifications(f, owners, now) })
	nameDecisions(list, orders, now)
	c.mail(cycle, list)
	if c.DryRun || c.NoTerminals {
		return nil
	}
	addNotifications(list, events, func(f *enforce.Finding) []notify.Notification { // last, and so not in place of a warning
		return notify.Elsewhere(f, owners, c.Policy.Account, now)
	})
	c.Memory.Messages.Forget(now)
	for host, notifications := range list {
		messages = append(messages, c.batch(host, notifications, now))
	}
	return messages
}

// send saves the memory, which has what is going to be sent, and then sends it.
func (c *Controller) send(ctx context.Context, cycle *Cycle, errands []errand) {
	c.unsaved = true
	safe := c.save(ctx, len(errands) > 0) // before sending: a crash must not lead to a second order
	if len(errands) > 0 {
		c.sentLog = c.Audit
		c.visits.send(ctx, &c.Asker, visitsFor(cycle, errands), safe.afterSave())
	}
}

func (c *Controller) emit(cycle *Cycle, events []enforce.Event) {
	for _, sink := range c.Sinks {
		sink.Consume(cycle, events)
	}
}

// await ends a cycle: it waits for the visits under way as dispatcher.wait does.
func (c *Controller) await(ctx context.Context, cycle *Cycle, until time.Time, settle time.Duration) {
	c.learn(cycle, c.visits.wait(ctx, until, settle, &meanwhile{
		requests: c.queue.waiting(), serve: func(r *request) { c.operate(ctx, r) },
		looks: c.between.wake.Looks(), early: func(l []wake.Look) { c.early(ctx, l) },
	}))
	cycle.UnderWay = c.Memory.Rules.UnderWay
	cycle.operator(c.Memory.Operator)
	unrecorded := ""
	if cycle.Unrecorded != nil {
		unrecorded = cycle.Unrecorded.Error()
	}
	cycle.RecordChanged, c.unrecorded = unrecorded != c.unrecorded, unrecorded
	c.save(ctx, false)
}

// learn records the outcomes of visits, updates the memory, and passes the events on.
func (c *Controller) learn(cycle *Cycle, done []*visit) {
	if len(done) == 0 {
		return
	}
	c.unsaved = true
	var all learned
	for _, v := range done {
		for i, e := range v.errands {
			l := e.learn(c, cycle, v.errs[i])
			all.records, all.events = append(all.records, l.records...), append(all.events, l.events...)
		}
	}
	record := c.recordWriter()
	record.log = c.sentLog
	cycle.Records = record.bounded(all.records)
	if err := record.write(cycle, cycle.Records); err != nil {
		cycle.Unrecorded = err
	}
	c.emit(cycle, all.events)
}
