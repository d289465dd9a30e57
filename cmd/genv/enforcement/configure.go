package enforcement

import (
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/companions"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/hooks"
)

// configure has the controller do what options says, as what this run is now.
func (l *loop) configure(options Options) {
	if former := l.hooks; former != nil { // they finish what they were sent
		l.former.Go(func() { former.Close(hooksTimeout) })
	}
	l.hooks = hooks.NewQueue(options.Policy.Hooks, l.hookDone)
	l.options = options
	if options.Allow != nil {
		options.Allow(nil) // until the first cycle has ended
	}
	l.part.configure(&options)
	l.groups.Store(&options.Policy.Groups)
	l.service.limit.Store(int64(options.CycleLimit))
	parts := controller.Options{
		Survey: controller.Survey{
			Hosts: options.Hosts, Link: options.link(), Fanout: options.Fanout,
			StopAtFailure: options.StopAtFailure, Progress: options.Progress.Update,
		},
		Policy: options.policy(), Now: l.program.Now,
	}
	if l.acts() {
		l.enable(&parts, &options)
	} else {
		l.mail.replace(nil, mailWithin)
		parts.Policy, parts.DryRun = nil, true
	}
	if l.usage != nil {
		l.usage.Configure(options.Interval)
		parts.Sinks = append(parts.Sinks, l.usage)
	}
	parts.Sinks = append(parts.Sinks, l.viewers(&options)...)
	l.controller.Configure(parts)
}

// enable adds what a controller that enforces has, and one that only looks doesn't.
func (l *loop) enable(c *controller.Options, options *Options) {
	c.DryRun, c.ActUnrecorded = options.DryRun, options.ActUnrecorded
	if l.record != nil {
		c.Audit = l.record
	}
	c.Store, c.OnSave = l.store, l.saved
	mayBegin := func() error { return nil }
	if term := l.term; term != nil {
		mayBegin = func() error { return remote.MayBegin(term) }
	}
	l.guard.ID, l.guard.By = l.announce(options)
	l.guard.Interval = options.Interval
	c.Companions = []controller.Companion{&l.guard}
	if options.Policy.TellUsers.On {
		c.Companions = append(c.Companions, &l.messages)
	}
	if mailer := l.mail.configure(options, mayBegin); mailer != nil {
		c.Companions = append(c.Companions, companions.Mail{Mailer: mailer})
	}
	if options.Allow != nil && options.loops() {
		c.Companions = append(c.Companions, l.allowances(options))
	}
	if !options.Events {
		c.Link = controller.Polled{Link: c.Link}
	}
	c.Sinks = []controller.Sink{
		hooks.Sink{Queue: l.hooks, Now: l.program.Now, Leads: func() bool { return l.mayAct() == nil }},
		&l.screen,
	}
}

// allowances has hosts told what the policy allows.
func (l *loop) allowances(options *Options) *companions.Allowances {
	by := l.guard.By
	if options.LocalName != "" {
		by = "genv enforce"
	}
	return &companions.Allowances{
		By: by, Contact: options.Policy.Contact, Page: options.Listen.Web.Page(),
		OneHost: options.LocalName != "", Interval: options.Interval, Tell: options.Allow,
	}
}

func (l *loop) viewers(options *Options) []controller.Sink {
	if options.Feed == nil {
		return nil
	}
	view := options.live(l.program)
	if l.part != nil {
		view.Election = l.part.shown
	}
	options.Feed.Configure(view)
	l.counters.Configure(options.Interval)
	return []controller.Sink{options.Feed, l.counters}
}
