// Package guards decides which orders a controller sends to the kernel guards of its hosts in
// a cycle, and turns their answers into events. It sends nothing by itself: an Ask does, when the
// controller sends it with what else a host gets.
//
//	asks, events := tracker.Plan(policy, fleet, memory, guards.Options{…})
//	ask.Send(ctx, link)
//	events := tracker.Learn(&memory, ask)
package guards

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/guard/mode"
	"github.com/seed-3119e985/genv/enforce/guard/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/controllers"
	"github.com/seed-3119e985/genv/remote/agent/guarding"
	"github.com/seed-3119e985/genv/snapshot"
)

// Link carries orders to hosts; *agent.Pool is one. Other links reach no guard.
type Link interface {
	Guard(ctx context.Context, host remote.Host, request guarding.Request) (guarding.Answer, error)
}

// Fleet is the hosts of a cycle.
type Fleet struct {
	Cluster  snapshot.Cluster
	Answered map[snapshot.Hostname]remote.Host // under which name each host answered
	About    func(remote.Host) agent.About
}

// host is a host of the fleet that answered.
type host struct {
	*snapshot.Host
	remote remote.Host // under the name that answered
	about  agent.About
}

func (f *Fleet) host(h *snapshot.Host) *host {
	answered := f.Answered[h.Name]
	return &host{h, answered, f.About(answered)}
}

// Options are what a cycle's orders have in common.
type Options struct {
	ID       string // of the controller
	By       string // where it runs and who started it, for people
	Interval time.Duration
	DryRun   bool
	Now      time.Time
}

// OptionsOf are the options of a controller; self is nil if it says nothing about itself,
// and then it is known by its run.
func OptionsOf(self *controllers.Controller, run string, interval time.Duration, dryRun bool, now time.Time) Options {
	o := Options{ID: run, By: "genv remote enforce", Interval: interval, DryRun: dryRun, Now: now}
	if self != nil {
		o.ID = self.ID
		o.By += fmt.Sprintf(" (%s on %s)", self.Account, self.Hostname)
	}
	return o
}

// Ask is a request to a host, and its answer.
type Ask struct {
	name    snapshot.Hostname
	host    remote.Host
	request guarding.Request
	begun   time.Time
	answer  guarding.Answer
	err     error
}

// Host is the host's name in the cluster, and how it is reached.
func (a *Ask) Host() (snapshot.Hostname, remote.Host) { return a.name, a.host }

// Send asks the host, unless a is nil or ctx has ended.
func (a *Ask) Send(ctx context.Context, link any) {
	if a == nil {
		return
	}
	if a.err = ctx.Err(); a.err != nil {
		return
	}
	carrier, ok := link.(Link)
	if !ok {
		a.err = guarding.ErrCannotGuard
		return
	}
	a.answer, a.err = carrier.Guard(ctx, a.host, a.request)
}

// Unsent says why the guard is not asked. A nil Ask asks nothing.
func (a *Ask) Unsent(why error) {
	if a != nil {
		a.err = why
	}
}

// Wanted is the guard that the policy wants; off for a host that is exempt.
func Wanted(policy enforce.Policy, h *snapshot.Host, now time.Time) mode.Setting {
	s := policy.Settings(enforce.Query{Host: h.Name, Labels: h.Labels, At: now}).Guard
	if s.Mode == mode.Off {
		return mode.Setting{}
	}
	if _, exempt := policy.Exempt(enforce.Subject{Host: h.Name}); exempt {
		return mode.Setting{}
	}
	return s
}

// orderOf is the order for a host.
func orderOf(policy enforce.Policy, h *host, s mode.Setting, o Options) order.Order {
	wanted := order.Order{Mode: s.Mode, ExemptUsers: s.ExemptUsers, ExemptUIDs: s.ExemptUIDs, By: o.By}
	if s.Mode == mode.Off {
		return wanted
	}
	wanted.Lease = guarding.Lease(o.Interval)
	for i := range h.Snapshot.Devices {
		d := &h.Snapshot.Devices[i]
		if _, exempt := policy.Exempt(enforce.Subject{Host: h.Name, Device: d}); !exempt {
			continue
		}
		wanted.ExemptDevices = append(wanted.ExemptDevices, d.Index)
		if d.UUID != "" {
			wanted.ExemptUUIDs = append(wanted.ExemptUUIDs, d.UUID)
		}
	}
	return wanted
}
