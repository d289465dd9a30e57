package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/hook"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// enforcement is what a run of `enforce` holds beside its hosts: the policy in
// force, its hooks, and the record.
type enforcement struct {
	program *program
	context *cli.Context
	fleet   *fleet
	here    snapshot.Hostname // the name of this machine, if it is the only host
	policy  enforce.Policy
	hooks   *hook.Queue
	former  sync.WaitGroup // hooks of a policy that was in force before, which are told to the end
}

// beginEnforcement reads the policy and opens what it needs. Whatever is wrong
// is said before anything is done.
func (p *program) beginEnforcement(c *cli.Context, f *fleet, here string) (*enforcement, error) {
	file, err := policyOf(c)
	if err != nil {
		return nil, err
	}
	f.DryRun = given(c, "dry-run").Bool("dry-run")
	if isGiven(c, "exit-code") && !f.DryRun {
		return nil, usage("--exit-code says whether there is something to do: write it with --dry-run")
	}
	f.ActUnrecorded = given(c, "act-unrecorded").Bool("act-unrecorded")
	if f.Audit, err = auditOf(c); err != nil {
		return nil, err
	}
	e := &enforcement{program: p, context: c, fleet: f, here: snapshot.Hostname(here)}
	e.enact(file)
	return e, nil
}

// enact puts a policy into force.
func (e *enforcement) enact(file *policy.File) {
	if former := e.hooks; former != nil {
		e.former.Go(func() { former.Close(hookPatience) })
	}
	log := e.program.logger(e.context)
	e.hooks = hook.New(file.Hooks, func(err error) { log.Warn().Err(err).Msg("a hook was not told; the cycles go on without it") })
	e.policy, e.fleet.Hooks = file, e.hooks
	if e.here != "" {
		e.policy = policyHere{file, e.here}
	}
}

// reread reads the policy again. An error leaves the one in force.
func (e *enforcement) reread() (enforce.Policy, error) {
	file, err := policyOf(e.context)
	if err != nil {
		return nil, err
	}
	e.enact(file)
	return e.policy, nil
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

func (e *enforcement) close() {
	e.hooks.Close(hookPatience)
	e.former.Wait()
}

// auditOf opens the log of --audit-log: a log that cannot be written is said
// before anything is done.
func auditOf(c *cli.Context) (controller.Recorder, error) {
	path := given(c, "audit-log").String("audit-log")
	if path == "" {
		return nil, nil //nolint:nilnil // no log is asked for
	}
	text := given(c, "audit-size").String("audit-size")
	size, err := snapshot.ParseMemory(text)
	if err != nil || size.Bytes() < 1<<20 {
		return nil, usage("--audit-size %q: write a size of 1m or more, such as 64m", text)
	}
	keep := given(c, "audit-keep").Int("audit-keep")
	if keep < 1 {
		return nil, usage("--audit-keep %d: write 1 or more", keep)
	}
	if err := audit.Check(path); errors.Is(err, audit.ErrNotALog) {
		return nil, usage("--audit-log: %w; nothing was done: name another file", err)
	}
	log := &audit.Log{Path: path, MaxBytes: size.Bytes(), Keep: keep}
	if err := log.Append(); err != nil && !given(c, "act-unrecorded").Bool("act-unrecorded") {
		return nil, usage("--audit-log: %w; nothing is done unrecorded (--act-unrecorded allows it)", err)
	}
	return log, nil
}

// policyOf reads the policy: what is built in, the file over it, and the flags
// over both.
func policyOf(c *cli.Context) (*policy.File, error) {
	file := policy.Default()
	if path := given(c, "policy").String("policy"); path != "" {
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
	data, err := readPolicyFile(path)
	if err != nil {
		return nil, err
	}
	file, err := policy.Parse(path, data)
	if err != nil {
		return nil, usage("%w; `genv policy check %s` tells all that is wrong", err, path)
	}
	return file, nil
}

func readPolicyFile(path string) ([]byte, error) {
	f, err := openAtOnce(path)
	if err != nil {
		return nil, usage("the policy: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPolicyBytes+1))
	if err != nil {
		return nil, usage("the policy: %w", err)
	}
	if len(data) > maxPolicyBytes {
		return nil, usage("%s is longer than the %d bytes that are read", path, maxPolicyBytes)
	}
	return data, nil
}

// cycleExit is the exit code of a cycle.
func cycleExit(cycle *controller.Cycle, f *fleet, tellWork bool) error {
	if err := fleetExit(failuresOfCycle(*cycle), len(cycle.Cluster.Hosts), f.quiet); err != nil {
		return err
	}
	switch {
	case cycle.Unrecorded != nil:
		return &exitError{code: exitUnrecorded}
	case cycle.Plan.Held():
		return &exitError{code: exitHeld}
	case tellWork && cycle.DryRun && len(cycle.Plan.Reports) > 0:
		return &exitError{code: exitWork}
	}
	return nil
}

// heldRemarks name the users and hosts whose actions safety limits held back. They
// are printed in every such cycle, because the administrator has to decide.
func heldRemarks(cycle *controller.Cycle) []string {
	var remarks []string
	for _, h := range slices.Concat(cycle.Plan.HeldUsers, cycle.Plan.HeldHosts) {
		remarks = append(remarks, h.String()+". If it is intended, raise `limits:` in the policy.")
	}
	return remarks
}

// remarksOfCycle is what else a cycle says of itself on stderr, if it did less
// than its plan.
func remarksOfCycle(cycle *controller.Cycle) []string {
	var remarks []string
	if err := cycle.Unrecorded; err != nil && len(cycle.Actions) == 0 && len(cycle.Plan.Reports) > 0 {
		remarks = append(remarks, fmt.Sprintf("Nothing is done, since it could not be recorded: %v. Make room there, or run with --act-unrecorded.", err))
	} else if err != nil {
		remarks = append(remarks, fmt.Sprintf("The record is incomplete: %v. What is missing is written as soon as there is room.", err))
	}
	return remarks
}
