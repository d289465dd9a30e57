package enforcement

import (
	"context"
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/companions"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/hooks"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	hostservice "github.com/seed-3119e985/genv/snapshot/state/service"
)

// Options configure a run. They are read at its start and at each reload.
type Options struct {
	Policy        *policy.File
	Unix          *nss.GroupMembers // knows members of the policy's Unix groups; nil for none
	Interval      time.Duration     // between the starts of two cycles; 0 for a single one
	Events        bool              // also act between two cycles
	Cycles        int               // 0 for unlimited
	Format        string            // tui or json
	DryRun        bool
	ExitCode      bool // the exit code of a dry run says whether there is something to do
	ByUser        bool // a dry run of one cycle prints a row for each user
	ActUnrecorded bool
	AuditLog      string        // path; empty for none
	AuditSize     int64         // bytes at which the log is rotated
	AuditKeep     int           // rotated files
	StateDir      string        // for the memory; empty for the default
	TakeOver      bool          // act on hosts of another controller
	Timestamps    string        // whether stdout is dated: auto, always or never
	Summary       time.Duration // the period of a summary on stderr; 0 for none
	Leader        Leader        // with a Key, the run acts only while it leads
	Listen        listeners.Endpoints
	LookOnly      bool // a DryRun without rules: keeps nothing, and prints only hosts that are lost or back

	Hosts         []remote.Host
	Fanout        int               // hosts asked at a time
	LocalName     snapshot.Hostname // of this machine in the policy, if it is the only, unnamed host
	StopAtFailure bool              // end a cycle at the first failure
	Quiet         bool              // don't print which hosts failed
	CycleLimit    time.Duration     // a longer cycle is stuck, unless it waits for orders

	// A reload keeps the fields below.

	Link     controller.Link
	Progress *render.Progress
	// Feed, if set, has the live state, which is served at Listen.
	Feed *live.Feed
	// OpenUsage, if set, keeps usage in the folder of a loop's memory, and reads it for viewers, by the policy's
	// groups.
	OpenUsage            func(dir string) (*usage.Recorder, func(groups func() map[string][]string) *usage.Reader)
	UsageURL, UsageFleet string // PostgreSQL server for usage and GPU hours of caps; or empty
	// Announce, if set, tells the hosts who enforces them, and asks for a lease; nil in a standby.
	Announce func(id string, lease *fence.LeaseRequest)
	// Allow, if set, tells each host what the policy allows there; nil for nothing.
	Allow func(map[snapshot.Hostname]*hostservice.Allowance)
	// GiveBack, if set, returns the leases of the hosts at the end.
	GiveBack func(context.Context)
}

// LoopFlags are the flags of `enforce`, on this machine and on a fleet.
type LoopFlags struct {
	policy     policycheck.RuleFlags
	unix       *nss.GroupMembers
	options    Options
	auditSize  string
	events, by string
}

// Flags returns the flags.
func (o *LoopFlags) Flags() []cli.Flag {
	o.auditSize, o.events = "64m", "on"
	o.options.Interval, o.options.AuditKeep = 10*time.Second, audit.DefaultKeep
	to := &o.options
	return append(o.policy.Flags(),
		command.Duration(&to.Interval, "interval", "`TIME` between cycles, in seconds or as 500ms; 0 runs once").
			OrZero().Config(command.Site),
		command.String(&o.events, "events",
			"`on` or off: look at a host at once when something happens there, also between two cycles").
			OneOf("on", "off"),
		command.Int(&to.Cycles, "cycles", "end after `N` cycles; 0 never ends").AtLeast(0),
		command.Bool(&to.DryRun, "dry-run", "print what would be done, and why, and do nothing"),
		command.String(&o.by, "by", "with --dry-run and --interval 0: print how much would be done, by `user`").
			OneOf("user"),
		command.Bool(&to.ExitCode, "exit-code", "with --dry-run: exit with 10 if there is something to do"),
		command.String(&to.AuditLog, "audit-log",
			"append what is found, decided and done to `FILE`, as JSON lines; off for none").Config(command.Record),
		command.String(&o.auditSize, "audit-size", "rotate the record when it reaches this `SIZE`").
			Config(command.Site).Hide(),
		command.Int(&to.AuditKeep, "audit-keep", "keep `N` rotated records").AtLeast(1).Config(command.Site).Hide(),
		command.Bool(&to.ActUnrecorded, "act-unrecorded", "continue to act when the record can't be written").
			Config(command.Asked),
		command.String(&to.StateDir, "state-dir",
			"save in `DIR`, for a restart, how long each finding has existed and which users were notified").
			Config(command.Shared).Unless("STATE_DIRECTORY").
			DefaultText("~/.local/state/genv, or systemd's StateDirectory="),
		TimestampsFlag(&to.Timestamps),
		command.Duration(&to.Summary, "summary",
			"print a line about what happened, on stderr, once in this `TIME`, such as 1h").
			Config(command.Site).DefaultText("none").Hide(),
		command.FormatFlag(&to.Format, "tui", "json"),
	)
}

// TakeOverFlag is for fleets only.
func (o *LoopFlags) TakeOverFlag() cli.Flag {
	return command.Bool(&o.options.TakeOver, "take-over", "act on hosts on which a controller with another "+
		"--state-dir acted until now, and have them refuse that one")
}

// Read checks the flags, and reads the policy file.
func (o *LoopFlags) Read(c *cli.Context) (Options, error) {
	options := o.options
	options.Events, options.ByUser = o.events == "on", o.by != ""
	var err error
	if options.Policy, err = o.policy.Read(c); err != nil {
		return options, err
	}
	if o.unix == nil { // a reload keeps the known members
		o.unix = nss.NewGroups(time.Now)
		if !options.loops() {
			o.unix.Wait = unixWait
		}
	}
	options.Unix = o.unix
	options.Policy.AskUnix(o.unix.Member)
	if options.loops() { // single cycles count no hours
		options.Policy.OfFleet.Interval = options.Interval
	}
	if options.ExitCode && !options.DryRun {
		return options, command.WrongFlag("exit-code", " needs --dry-run")
	}
	if options.ByUser && (!options.DryRun || options.Interval != 0) {
		return options, command.WrongFlag("by", " is about what would be done now: it needs --dry-run and --interval 0")
	}
	if options.TakeOver && options.DryRun {
		return options, command.WrongFlag("take-over", ": a dry run takes no host over")
	}
	size, err := snapshot.ParseMemory(o.auditSize)
	if err != nil || size.Bytes() < 1e6 {
		return options, command.WrongFlag("audit-size", " %q: write a size of 1m or more, such as 64m", o.auditSize)
	}
	options.AuditSize = size.Bytes()
	return options, nil
}

// UseHostGroups gives a policy's caps the groups of an inventory: the named files, or the default one.
func UseHostGroups(file *policy.File, named inventory.Selection, getenv func(string) string) error {
	named.DefaultFiles, named.OpenDefault = command.ConfigPaths(getenv, command.HostsFile), command.OpenConfig
	err := file.UseHostGroups(func() (groups map[string][]string, err error) {
		_, groups, err = inventory.Known(named, command.OpenAtOnce)
		return groups, err //nolint:wrapcheck // it is passed on
	})
	if err != nil {
		return command.UsageError("%w", err)
	}
	return nil
}

const (
	unixWait     = 5 * time.Second // a single cycle waits for the directory of accounts
	roomOfRecord = 8 << 20         // bytes that stay allocated for the record: about 10,000 entries
)

// openAuditLog returns nil for none. A log that can't be written is an error before anything is done.
func (o *Options) openAuditLog(readers int) (*audit.Log, error) {
	if o.AuditLog == "" || o.AuditLog == "off" {
		return nil, nil //nolint:nilnil // no log is asked for
	}
	if err := audit.Check(o.AuditLog); errors.Is(err, audit.ErrNotALog) {
		return nil, command.WrongFlag("audit-log", ": %w; nothing was done: name another file", err)
	}
	log := &audit.Log{
		Path: o.AuditLog, MaxBytes: o.AuditSize, Keep: o.AuditKeep, Readers: readers, Room: roomOfRecord,
	}
	if err := log.Append(); err != nil && !o.ActUnrecorded {
		return nil, command.WrongFlag("audit-log", ": %w; nothing is done without a record (--act-unrecorded "+
			"allows it)", err)
	}
	return log, nil
}

// TimestampsFlag sets when lines on stdout begin with the time. By default only a terminal gets it; other lines are
// 1.4.3's.
func TimestampsFlag(to *string) cli.Flag {
	*to = "auto"
	return command.String(to, "timestamps", "`WHEN` to print the time in front of lines on stdout: auto (on a "+
		"terminal), always or never; on stderr it is always printed, except in systemd's journal").
		OneOf("auto", "always", "never").Config(command.Site).Hide()
}

func (o *Options) loops() bool { return o.Interval > 0 && o.Cycles != 1 }

func (o *Options) policy() enforce.Policy {
	if o.LocalName != "" {
		return localPolicy{o.Policy, o.LocalName}
	}
	return o.Policy
}

// link reaches the hosts. A single cycle asks the directory once for all people in its snapshots.
func (o *Options) link() controller.Link {
	if o.Unix == nil || o.loops() {
		return o.Link
	}
	return peopleLink{o.Link, func(user snapshot.Username) { o.Unix.Want(string(o.Policy.Account(user))) }}
}

type peopleLink struct {
	controller.Link
	saw func(snapshot.Username)
}

// Snapshot implements controller.Link.
func (l peopleLink) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	s, err := l.Link.Snapshot(ctx, host)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is passed on
	}
	for i := range s.Processes {
		l.saw(s.Processes[i].Username)
	}
	for i := range s.Environments {
		l.saw(s.Environments[i].Username)
	}
	return s, nil
}

// localPolicy gives this machine, which has no name in findings, its name in the policy.
type localPolicy struct {
	enforce.Policy
	name snapshot.Hostname
}

// Settings implements enforce.Policy.
func (p localPolicy) Settings(q enforce.Query) *enforce.Settings {
	q.Host = p.name
	return p.Policy.Settings(q)
}

// Exempt implements enforce.Policy.
func (p localPolicy) Exempt(s enforce.Subject) (string, bool) {
	s.Host = p.name
	return p.Policy.Exempt(s)
}

// ExemptIndices implements enforce.Policy.
func (p localPolicy) ExemptIndices(snapshot.Hostname) []enforce.ExemptGPU {
	return p.Policy.ExemptIndices(p.name)
}

// Caps implements enforce.Policy.
func (p localPolicy) Caps(at time.Time) []*enforce.Cap {
	list := p.Policy.Caps(at)
	for _, c := range list {
		onHost := c.OnHost
		c.OnHost = func(_ snapshot.Hostname, labels map[string]string) bool { return onHost(p.name, labels) }
	}
	return list
}

func (l *loop) configure(options Options) {
	if former := l.hooks; former != nil { // they finish what they have
		l.former.Go(func() { former.Close(hooksTimeout) })
	}
	l.hooks = hooks.NewQueue(options.Policy.Hooks, l.hookDone)
	l.options = options
	if options.Allow != nil {
		options.Allow(nil) // until the end of the first cycle
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
		Sinks: []controller.Sink{ // of a standby, too: orders of its last term may continue
			hooks.Sink{Queue: l.hooks, Now: l.program.Now, Leads: func() bool { return l.mayAct() == nil }}, &l.screen,
		},
	}
	if l.record != nil {
		parts.Audit = l.record
	}
	if l.acts() {
		l.enable(&parts, &options)
	} else {
		l.mail.end(mailWithin)
		parts.Policy, parts.DryRun = nil, true
	}
	if l.usage != nil {
		l.usage.Configure(options.Interval)
		parts.Sinks = append(parts.Sinks, l.usage)
	}
	parts.Sinks = append(parts.Sinks, l.viewers(&options)...)
	l.controller.Configure(parts)
}

func (l *loop) enable(c *controller.Options, options *Options) {
	c.DryRun, c.ActUnrecorded = options.DryRun, options.ActUnrecorded
	c.Store, c.OnSave = l.store, l.saved
	mayBegin := func() error { return nil }
	if term := l.term; term != nil {
		mayBegin = func() error { return remote.MayBegin(term) }
	}
	l.guard.ID, l.guard.By = l.announce(options)
	l.guard.Interval = options.Interval
	c.Companions = []controller.Companion{&l.guard}
	if options.Policy.OfFleet.NotifyUsers {
		c.Companions = append(c.Companions, &l.messages)
	}
	if send := l.mail.configure(options, mayBegin); send != nil {
		c.Companions = append(c.Companions, send)
	}
	if options.Allow != nil && options.loops() {
		allowances := &companions.Allowances{
			By: l.guard.By, Contact: options.Policy.OfFleet.Contact, Page: options.Listen.Web.Page(),
			OneHost: options.LocalName != "", Interval: options.Interval, Tell: options.Allow,
		}
		if allowances.OneHost {
			allowances.By = "genv enforce"
		}
		c.Companions = append(c.Companions, allowances)
	}
	if !options.Events {
		c.Link = controller.Polled{Link: c.Link}
	}
}

func (l *loop) viewers(options *Options) []controller.Sink {
	if options.Feed == nil {
		return nil
	}
	view := live.Options{
		Now: l.program.Now, Interval: options.Interval, Enforcing: !options.LookOnly, Policy: options.policy(),
	}
	if l.part != nil {
		view.Election = l.part.shown
	}
	options.Feed.Configure(view)
	l.counters.Configure(options.Interval)
	return []controller.Sink{options.Feed, l.counters}
}
