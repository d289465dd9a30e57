package enforcement

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/hook"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// Enforcement is what a run of `enforce` holds beside its hosts: the policy in
// force, its hooks, and the record.
type Enforcement struct {
	program *command.Program
	context *cli.Context
	fleet   *Fleet
	here    snapshot.Hostname // the name of this machine, if it is the only host
	screen  *cycleWriter
	store   *controller.Store // nil for none
	hooks   *hook.Queue
	former  sync.WaitGroup // hooks of a policy that was in force before, which are told to the end
}

// Begin reads the policy and opens what it needs. Whatever is wrong
// is said before anything is done.
func Begin(p *command.Program, c *cli.Context, f *Fleet, here, format string) (*Enforcement, error) {
	file, err := PolicyOf(c)
	if err != nil {
		return nil, err
	}
	f.DryRun = command.Given(c, "dry-run").Bool("dry-run")
	if command.IsGiven(c, "exit-code") && !f.DryRun {
		return nil, command.Usage("--exit-code says whether there is something to do: write it with --dry-run")
	}
	f.ActUnrecorded = command.Given(c, "act-unrecorded").Bool("act-unrecorded")
	if f.Audit, err = auditOf(c); err != nil {
		return nil, err
	}
	e := &Enforcement{
		program: p, context: c, fleet: f, here: snapshot.Hostname(here),
		screen: &cycleWriter{out: p.Out, err: p.Err, format: format, quiet: f.Quiet, bar: f.Bar},
	}
	e.enact(file)
	state, err := stateDirOf(p, c, here)
	if err != nil {
		return nil, err
	}
	e.store, err = state.remember(f.Controller, p.Logger(c))
	return e, err
}

func stateDirOf(p *command.Program, c *cli.Context, here string) (stateDir, error) {
	schedule, err := ScheduleOf(c)
	name := "controller"
	if here != "" {
		name = "enforce"
	}
	path := command.Given(c, "state-dir").String("state-dir")
	return stateDir{
		path: cmp.Or(path, defaultStateDir(p.Getenv, name)), given: path != "", loop: schedule.Interval > 0 && schedule.Cycles != 1,
	}, err
}

// enact puts a policy into force.
func (e *Enforcement) enact(file *policy.File) {
	if former := e.hooks; former != nil {
		e.former.Go(func() { former.Close(hookPatience) })
	}
	log := e.program.Logger(e.context)
	e.hooks = hook.New(file.Hooks, func(err error) { log.Warn().Err(err).Msg("a hook was not told; the cycles go on without it") })
	e.fleet.Policy = file
	if e.here != "" {
		e.fleet.Policy = policyHere{file, e.here}
	}
	e.fleet.Sinks = []controller.Sink{controller.HookSink{Hooks: e.hooks, Now: e.fleet.Now}, e.screen}
}

// Reload reads the policy again, and makes a controller of it for these hosts. An
// error leaves the one in force.
func (e *Enforcement) Reload(hosts []remote.Host) (*controller.Controller, error) {
	file, err := PolicyOf(e.context)
	if err != nil {
		return nil, err
	}
	next := *e.fleet.Controller
	next.Hosts, e.fleet.Controller = hosts, &next
	e.enact(file)
	return &next, nil
}

// policyHere is a policy for this machine, which goes without a name in
// findings, and by its own in the policy.
type policyHere struct {
	enforce.Policy
	name snapshot.Hostname
}

// Settings implements enforce.Policy.
func (p policyHere) Settings(q enforce.Query) enforce.Settings {
	q.Host = p.name
	return p.Policy.Settings(q)
}

// Exempt implements enforce.Policy.
func (p policyHere) Exempt(s enforce.Subject) (string, bool) {
	s.Host = p.name
	return p.Policy.Exempt(s)
}

// hookPatience is how long the end of a run waits for what hooks were to be
// told.
const hookPatience = 10 * time.Second

// Close waits for the hooks, but not for ever.
func (e *Enforcement) Close() {
	e.forget()
	e.hooks.Close(hookPatience)
	e.former.Wait()
}

// auditOf opens the log of --audit-log: a log that cannot be written is said
// before anything is done.
func auditOf(c *cli.Context) (controller.Recorder, error) {
	path := command.Given(c, "audit-log").String("audit-log")
	if path == "" {
		return nil, nil //nolint:nilnil // no log is asked for
	}
	text := command.Given(c, "audit-size").String("audit-size")
	size, err := snapshot.ParseMemory(text)
	if err != nil || size.Bytes() < 1<<20 {
		return nil, command.Usage("--audit-size %q: write a size of 1m or more, such as 64m", text)
	}
	keep := command.Given(c, "audit-keep").Int("audit-keep")
	if keep < 1 {
		return nil, command.Usage("--audit-keep %d: write 1 or more", keep)
	}
	if err := audit.Check(path); errors.Is(err, audit.ErrNotALog) {
		return nil, command.Usage("--audit-log: %w; nothing was done: name another file", err)
	}
	log := &audit.Log{Path: path, MaxBytes: size.Bytes(), Keep: keep}
	if err := log.Append(); err != nil && !command.Given(c, "act-unrecorded").Bool("act-unrecorded") {
		return nil, command.Usage("--audit-log: %w; nothing is done unrecorded (--act-unrecorded allows it)", err)
	}
	return log, nil
}

// PolicyOf reads the policy: what is built in, the file over it, and the flags
// over both.
func PolicyOf(c *cli.Context) (*policy.File, error) {
	file := policy.Default()
	if path := command.Given(c, "policy").String("policy"); path != "" {
		var err error
		if file, err = readPolicy(path); err != nil {
			return nil, err
		}
	}
	return file, flagsOver(c, file)
}

// maxPolicyBytes is how much of a policy file is read.
const maxPolicyBytes = 4 << 20

func readPolicy(path string) (*policy.File, error) {
	data, err := ReadPolicyFile(path)
	if err != nil {
		return nil, err
	}
	file, err := policy.Parse(path, data)
	if err != nil {
		return nil, command.Usage("%w; `genv policy check %s` tells all that is wrong", err, path)
	}
	return file, nil
}

func ReadPolicyFile(path string) ([]byte, error) {
	f, err := command.OpenAtOnce(path)
	if err != nil {
		return nil, command.Usage("the policy: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPolicyBytes+1))
	if err != nil {
		return nil, command.Usage("the policy: %w", err)
	}
	if len(data) > maxPolicyBytes {
		return nil, command.Usage("%s is longer than the %d bytes that are read", path, maxPolicyBytes)
	}
	return data, nil
}

// cycleExit is the exit code of a cycle.
func cycleExit(cycle *controller.Cycle, f *Fleet, tellWork bool) error {
	if err := command.FleetExit(failuresOfCycle(cycle), len(cycle.Cluster.Hosts), f.Quiet); err != nil {
		return err
	}
	switch {
	case cycle.Unrecorded != nil:
		return &command.ExitError{Code: command.ExitUnrecorded}
	case cycle.Plan.Held():
		return &command.ExitError{Code: command.ExitHeld}
	case tellWork && cycle.DryRun && len(cycle.Plan.Reports) > 0:
		return &command.ExitError{Code: command.ExitWork}
	}
	return nil
}

// remarkOfRecord says that the record could not be written, when that begins or its
// reason changes.
func remarkOfRecord(cycle *controller.Cycle) string {
	switch {
	case !cycle.RecordChanged || cycle.Unrecorded == nil:
		return ""
	case len(cycle.Actions) == 0 && len(cycle.Plan.Reports) > 0:
		return fmt.Sprintf("No action taken, since it could not be recorded: %v. Make room there, or run with --act-unrecorded.", cycle.Unrecorded)
	}
	return fmt.Sprintf("The record is incomplete: %v. What is missing is written as soon as there is room.", cycle.Unrecorded)
}
