// Package enforcement runs the loop of `genv enforce` and `genv remote enforce`: flags, the policy and its hooks, the
// audit log, output, and reloads. It doesn't know how hosts are reached.
package enforcement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/companions"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/hooks"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Run enforces until the number of cycles is reached or ctx ends, and prints each cycle. SIGHUP calls reload; its error
// changes nothing. Run's error has the exit code of the last whole cycle.
func Run(ctx context.Context, p *command.Program, log zerolog.Logger, options Options,
	reload func() (Options, error),
) error {
	return newLoop(p, log, &options, reload).run(ctx, options)
}

func newLoop(p *command.Program, log zerolog.Logger, options *Options, reload func() (Options, error)) *loop {
	return &loop{program: p, log: log, reload: reload, screen: newCycleWriter(p, options), queue: controller.NewQueue()}
}

type loop struct {
	program *command.Program
	log     zerolog.Logger
	reload  func() (Options, error)
	record  *audit.Log       // nil for none
	folder  *statedir.Folder // of the run's state; nil for none
	store   controller.Store // in this role; nil for none
	unsaved string           // kind of the error of saving the memory; empty for none
	usage   *usage.Recorder  // nil for none
	service *service
	screen  cycleWriter
	groups  atomic.Pointer[map[string][]string] // of the policy
	queue   *controller.Queue                   // requests of operators

	counters          *metrics.Counters // nil without a Feed
	self              runIdentity
	lease             *fence.LeaseRequest // requested from hosts; nil for none
	warnedOfUnfenced  bool
	warnedOfOlderEtcd bool
	laterSince        time.Time // when most hosts began to refuse this leader for a later epoch; zero if they don't
	unsavedSince      time.Time
	unrecorded        int            // consecutive cycles
	unable            atomic.Bool    // to record, so it doesn't lead
	part              *participation // in an election; nil for none
	loggedElection    string         // the last line in the log
	// term is the leader's, and decides whether something may begin; nil without an election and in a standby.
	term      context.Context //nolint:containedctx // the lifetime of the term
	readUsage func(groups func() map[string][]string) *usage.Reader

	begun      bool // the memory of the former run or leader is loaded
	controller controller.Controller
	options    Options
	hooks      *hooks.Queue
	guard      companions.Guards
	messages   companions.Messages
	mail       mailer
	former     sync.WaitGroup // hooks of earlier policies that are still running
	last       error          // exit code of the last cycle
}

func (l *loop) run(ctx context.Context, options Options) error {
	p, log := l.program, l.log
	var err error
	if l.record, err = options.openAuditLog(options.readers(p.Getenv)); err != nil {
		return err
	}
	name := controllerName
	if options.LocalName != "" {
		name = "enforce"
	}
	if l.folder, err = openFolder(p, &options, name, log); err != nil {
		return err
	}
	defer l.close()
	defer l.queue.End()
	l.openUsage(&options)
	if l.folder != nil && l.record != nil && !options.DryRun {
		if err := l.folder.RecordWaiting(l.record); err != nil {
			log.Warn().Err(err).Msg("what operators asked for while no controller ran is not recorded yet")
		}
	}
	ctx, l.service = startService(ctx, log, options.Interval > 0)
	defer l.service.close()
	if options.Unix != nil && options.loops() {
		l.service.work.Go(func() { options.Unix.Run(ctx) })
	}
	if options.Feed != nil {
		l.counters = metrics.NewCounters(p.Now(), options.Interval)
	}
	if options.announces() {
		if err := l.identify(ctx, &options); err != nil {
			return err
		}
		defer func() { l.part.close() }()
	}
	l.warnOfIgnored(options.Policy)
	l.mail = mailer{log: log, now: p.Now}
	if l.record != nil {
		l.mail.record = l.recordLater
	}
	l.options = options
	l.viewers(&options)
	if options.Feed != nil {
		open, err := listeners.Open(ctx, options.Listen, l.shown(&options), log)
		if err != nil {
			return err
		}
		defer open.Close()
		l.printAddresses(open.Addresses, &options)
	}
	err = l.enforce(ctx)
	if l.lease.Leases() && options.GiveBack != nil {
		options.GiveBack(context.WithoutCancel(ctx))
	}
	if err != nil && !errors.Is(err, errStopped) {
		return err
	}
	return l.last
}

// openUsage opens the usage database next to the memory, where no other run writes.
func (l *loop) openUsage(options *Options) {
	if options.OpenUsage != nil && !options.DryRun && l.folder != nil && l.folder.Holds() && options.loops() {
		l.usage, l.readUsage = options.OpenUsage(l.folder.Path())
	}
}

func (l *loop) identify(ctx context.Context, options *Options) (err error) {
	if l.self, err = identityOf(ctx, l.folder, options.loops()); err != nil {
		return err
	}
	if err := l.takePart(ctx, options); err != nil || l.part != nil {
		return err
	}
	l.lease, err = leaseOf(l.folder, options, &l.self)
	return err
}

func (l *loop) warnOfIgnored(file *policy.File) {
	for _, key := range file.Ignored {
		l.log.Warn().Stringer("at", key.Place).Msg(key.Message)
	}
}

func (l *loop) shown(options *Options) listeners.Content {
	do := l.do
	if options.LookOnly {
		do = live.RefuseActions(operator.Refuse(operator.Unable, "Ask the controller that runs genv remote enforce.",
			"this is genv remote watch: it changes nothing"))
	}
	shown := listeners.Content{
		Feed: options.Feed, Actions: live.NewActions(do, system.Username),
		Metrics: &metrics.Exporter{
			Feed: options.Feed, Counters: l.counters, Now: l.program.Now, Version: l.program.Version,
		},
	}
	if l.record != nil {
		shown.Recorded = endedBefore(options.AuditLog, l.program.Now())
	}
	if l.usage != nil {
		shown.Usage = l.readUsage(func() map[string][]string { return *l.groups.Load() })
	}
	return shown
}

const maxEnded = 4096 // entries of the record for the pages of people

// endedBefore reads once the last maxEnded entries of the record in the 14 days before start; complete if that is all.
func endedBefore(path string, start time.Time) func() (list []audit.HistoryEntry, complete bool) {
	return sync.OnceValues(func() ([]audit.HistoryEntry, bool) {
		list, damage, err := audit.History(path, audit.Filter{Since: start.Add(-14 * 24 * time.Hour), Until: start})
		return slices.Clone(list[max(0, len(list)-maxEnded):]), err == nil && damage.Lines == 0 && len(list) <= maxEnded
	})
}

func (l *loop) do(ctx context.Context, who operator.Author, a operator.Action) (operator.Answer, error) {
	if l.part != nil && !l.part.Leads() {
		return operator.Answer{}, operator.Refuse(operator.Unable, "Ask the controller that leads: `genv remote "+
			"doctor --leader URL` shows it.", "this controller doesn't act now: %s", l.part.shown())
	}
	return l.queue.Do(ctx, who, a)
}

// printAddresses prints nothing if only the default socket of a controller that enforces is open.
func (l *loop) printAddresses(addresses []string, options *Options) {
	if len(addresses) == 0 || options.Quiet || !options.LookOnly && !options.Listen.Asked() {
		return
	}
	l.screen.line(fmt.Sprintf("Live state of %s, every %s: %s",
		text.Plural(len(options.Hosts), "host"), text.FormatDuration(options.Interval),
		strings.Join(addresses, ", ")))
}

func (l *loop) enforce(ctx context.Context) error {
	if l.part == nil {
		if l.folder != nil {
			l.store = l.folder
		}
		return l.cycles(ctx, l.load(ctx), 0)
	}
	takeOver := l.options.TakeOver                        // a reload doesn't change it
	ends := func(role context.Context, err error) error { // a leader still leads here
		if role.Err() == nil || ctx.Err() != nil {
			l.resign()
		}
		return err
	}
	err := l.part.Run(ctx, election.Roles{
		StandBy: func(role context.Context) error { return ends(role, l.standBy(role)) },
		Lead:    func(role context.Context, t election.Term) error { return ends(role, l.lead(role, t)) },
		Changed: func(s election.Status) { l.logElection(&s, takeOver) },
	})
	return cmp.Or(err, l.controller.Finish(ctx, func(round controller.Round) error { return l.show(ctx, &round) }))
}

func (l *loop) cycles(ctx context.Context, memory controller.FleetMemory, drain time.Duration) error {
	l.guard, l.messages = companions.Guards{}, companions.Messages{}
	l.configure(l.options)
	l.controller.Memory, l.begun = memory, true
	hours := l.keepHours()
	defer hours.exchange(hoursAtEnd)
	options := controller.LoopOptions{
		Interval: l.options.Interval, Cycles: l.options.Cycles, Drain: drain,
		Hangup: l.service.hangup, Reload: func() { l.reloaded(); hours.expect() }, Step: l.service.step, Actions: l.queue,
	}
	return controller.Loop(ctx, &l.controller, options, func(round controller.Round) error {
		hours.exchange(0)
		return l.show(ctx, &round)
	})
}

func (l *loop) reloaded() {
	if l.service.onTerminal && !stderrIsTerminal() { // the terminal was closed, which ends a program
		l.service.cancel()
		return
	}
	l.service.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
	defer l.service.notify(daemon.SdNotifyReady)
	options, err := l.reload()
	l.service.reloaded(err, l.program.Now())
	if err != nil {
		l.log.Error().Err(err).Msg("reload failed: the old hosts and the old policy stay")
		return
	}
	l.warnOfIgnored(options.Policy)
	old := &l.options
	options.Link, options.Progress, options.Feed, options.OpenUsage = old.Link, old.Progress, old.Feed, old.OpenUsage
	options.UsageURL, options.UsageFleet = old.UsageURL, old.UsageFleet
	options.Announce, options.Allow, options.GiveBack = old.Announce, old.Allow, old.GiveBack
	l.configure(options)
}

var errStopped = errors.New("the cycle was stopped")

// show returns an error to end the run.
func (l *loop) show(ctx context.Context, round *controller.Round) error {
	l.options.Progress.End()
	l.service.status(round)
	if l.options.loops() {
		defer l.service.collect()
	}
	l.noteRecord(round)
	if l.part != nil && !round.Stopped {
		now := l.program.Now()
		l.part.registrar.Set(func(r *election.Registration) { cycled(r, round, now) })
	}
	if (ctx.Err() != nil || remote.MayBegin(ctx) != nil) && len(round.Results) == 0 {
		return nil // interrupted before anything was done
	}
	// a stopped cycle doesn't improve the exit code
	if exit := l.exit(round, ctx.Err() != nil && l.options.loops()); exit != nil || !round.Stopped {
		l.last = exit
	}
	if err := l.screen.write(round, l.part.shown()); err != nil {
		return err
	}
	if round.Stopped {
		return errStopped
	}
	l.warnOfUnfenced()
	l.noteFullDisks()
	return l.replaced(round)
}

func (l *loop) noteFullDisks() {
	look := func(what, path string) {
		if c := doctor.CheckSpace(what, path); c.Cause == "disk-full" {
			l.screen.repeatedNote("", "Make room: "+c.Detail, l.program.Now())
		}
	}
	if l.record != nil {
		look("the record", filepath.Dir(l.record.Path))
	}
	if l.folder != nil {
		look("the memory", l.folder.Path())
	}
}

func (l *loop) close() {
	var hooks sync.WaitGroup
	if l.hooks != nil {
		hooks.Go(func() { l.hooks.Close(hooksTimeout) })
	}
	if l.usage != nil {
		l.usage.Close() // before another run may use its folder
	}
	if l.begun {
		l.mail.close(hooksTimeout)
		l.unsaved = ""                               // it is about another store
		if !l.controller.DryRun && l.folder != nil { // nor a standby: the leader's memory is newer
			l.saveNow(l.folder)
		}
	}
	if l.folder != nil {
		if err := l.folder.Close(); err != nil {
			l.log.Warn().Err(err).Msg("the state folder could not be closed")
		}
	}
	hooks.Wait()
	l.former.Wait()
}
