package controller

import (
	"context"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// errand is one thing that is sent to a host: an order, messages to its users, or what its guard is asked.
type errand interface {
	to() snapshot.Hostname
	// send sends it, in the background. It is called once, if something may be begun, with the host under the name that
	// answered.
	send(ctx context.Context, link Link, host remote.Host) error
	// learn remembers what came of it. The error is that of send, or why it was not sent.
	learn(c *Controller, cycle *Cycle, err error) learned
}

// learned is what there is to record and to say of an errand that has ended.
type learned struct {
	records []audit.Record
	events  []enforce.Event
}

// visit is what is sent to a host in a cycle, one after the other.
type visit struct {
	cycle    int
	position int // among the hosts
	name     snapshot.Hostname
	host     remote.Host // under the name that answered
	errands  []errand
	errs     []error // of the errands, after deliver
}

// visitsFor are the visits with which errands are done.
func visitsFor(cycle *Cycle, errands []errand) (visits []*visit) {
	known := make(map[snapshot.Hostname]*visit)
	for _, e := range errands {
		v := known[e.to()]
		if v == nil {
			v = &visit{cycle: cycle.Number, name: e.to(), host: cycle.answered[e.to()]}
			known[v.name], visits = v, append(visits, v)
		}
		v.errands = append(v.errands, e)
	}
	return visits
}

// deliver sends what a visit brings. What one errand fails with keeps no other from being sent.
func (v *visit) deliver(ctx context.Context, link Link) {
	for _, e := range v.errands {
		err := remote.MayBegin(ctx)
		if err == nil {
			err = e.send(ctx, link, v.host)
		}
		v.errs = append(v.errs, err)
	}
}
