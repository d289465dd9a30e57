package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

func (p *program) remoteEnforceCommand() *cli.Command {
	return &cli.Command{
		Name:   "enforce",
		Usage:  "hold all hosts to the rules, cycle after cycle",
		Flags:  append(append(remoteFlags(), policyFlags()...), formatFlag()),
		Action: p.remoteEnforce,
	}
}

func (p *program) remoteEnforce(c *cli.Context) error {
	format, err := formatOf(c, "tui", "json")
	if err != nil {
		return err
	}
	schedule, err := scheduleOf(c)
	if err != nil {
		return err
	}
	f, err := p.openFleet(c)
	if err != nil {
		return err
	}
	defer f.Close()
	if !isGiven(c, "command-timeout") {
		f.timeout = patienceFor(schedule.Interval, f.timeout)
	}
	rules, err := p.beginEnforcement(c, f, "")
	if err != nil {
		return err
	}
	defer rules.close()
	talks := f.converse(p.logger(c))
	defer talks.Close()
	return p.turn(c, f, rules.policy, schedule, format, func() (enforce.Policy, error) { return p.reread(c, f, talks, rules) })
}

// patienceFor is how long a host has for an answer when nobody said: in a loop
// the interval, and 10 s at least. A host that always answers just in time
// would otherwise make every cycle, and so every other host, as slow as itself;
// one that is too slow is asked on behind the cycles, and named.
func patienceFor(interval, longest time.Duration) time.Duration {
	if interval == 0 {
		return longest
	}
	return min(max(interval, 10*time.Second), longest)
}

// reread is what SIGHUP asks for: the hosts and the policy as they stand now.
func (p *program) reread(c *cli.Context, f *fleet, talks *controller.Streams, rules *enforcement) (enforce.Policy, error) {
	hosts, err := p.hostsOf(c)
	if err != nil {
		return nil, err
	}
	policy, err := rules.reread()
	if err != nil {
		return nil, err
	}
	old := f.Hosts
	f.client.Forget(talks.Keep(hosts)...)
	f.Hosts, f.Fanout = hosts, len(hosts)
	log := p.logger(c).Level(zerolog.InfoLevel)
	log.Info().Int("hosts", len(hosts)).Int("before", len(old)).Msg("SIGHUP: hosts and policy were read again")
	return policy, nil
}

// cycleLimit is after how long a cycle counts as stuck: every host may need its
// time twice, as many at a time as are logged in to, and then there are reports
// with a grace for their processes.
func (f *fleet) cycleLimit() time.Duration {
	turns := time.Duration(len(f.Hosts)/max(f.atOnce, 1) + 1)
	return turns*2*(f.timeout+time.Minute) + 2*maxGrace
}

// turn runs the controller's loop and shows each cycle. The exit code is that
// of the last cycle that ran to its end.
func (p *program) turn(c *cli.Context, f *fleet, policy enforce.Policy, s controller.Schedule, format string, reread func() (enforce.Policy, error)) error {
	var last error
	ctx, service, end := startService(c.Context, p.logger(c), &s, f.cycleLimit(), reread)
	defer end()
	shown := &cycleWriter{out: p.out, err: p.err, format: format, quiet: f.quiet}
	err := f.Loop(ctx, policy, s, func(cycle controller.Cycle) error {
		f.bar.end()
		service.tell(cycle)
		if ctx.Err() != nil && len(cycle.Actions) == 0 {
			return nil // cut off before anything was done: it says nothing of the hosts
		}
		last = cycleExit(&cycle, f, given(c, "exit-code").Bool("exit-code"))
		if err := shown.write(cycle); err != nil {
			return err
		}
		if cycle.Stopped {
			return last
		}
		return nil
	})
	if err != nil {
		return err
	}
	return last
}

// cycleWriter shows cycles to people, or as one JSON document a line.
type cycleWriter struct {
	out, err io.Writer
	format   string
	quiet    bool
	failed   []failure // of the cycle before: told again only when they change
	remarks  []string  // likewise
	warned   map[string]bool
	decided  map[string]audit.Decision // of the findings of the cycle before
}

// quiet are the decisions that are told once.
var quiet = []audit.Decision{audit.DecisionWait, audit.DecisionHold, audit.DecisionStuck}

func (w *cycleWriter) write(cycle controller.Cycle) error {
	failures := failuresOfCycle(cycle)
	if w.format == "json" {
		if err := writeJSON(w.out, enforceDocumentOf(cycle, failures)); err != nil {
			return err
		}
	} else if err := w.writeCycle(cycle); err != nil {
		return err
	}
	if !w.quiet && !slices.Equal(failures, w.failed) {
		writeFailures(w.err, failures, len(cycle.Cluster.Hosts))
	}
	w.failed = failures
	w.writeRemarks(&cycle)
	w.writeNotes(cycle)
	return nil
}

// writeRemarks tells on stderr, also with -q and for programs, what was not done
// for the limits' or the record's sake.
func (w *cycleWriter) writeRemarks(cycle *controller.Cycle) {
	remarks := remarksOfCycle(cycle)
	for _, text := range remarks {
		if !slices.Contains(w.remarks, text) {
			fmt.Fprintln(w.err, printable(oneLine(text)))
		}
	}
	w.remarks = remarks
}

// writeNotes tells on stderr, once each, what could not be judged and what the
// hosts warned of.
func (w *cycleWriter) writeNotes(cycle controller.Cycle) {
	now := make(map[string]bool)
	tell := func(host snapshot.Hostname, text string) {
		line := printable(oneLine(on(host, text)))
		if !w.warned[line] && !now[line] && w.format != "json" && !w.quiet {
			fmt.Fprintln(w.err, line)
		}
		now[line] = true
	}
	for _, n := range cycle.Plan.Notes {
		tell(n.Host, n.Text)
	}
	for _, h := range cycle.Cluster.Answered() {
		for _, text := range h.Snapshot.Warnings {
			tell(h.Name, text)
		}
	}
	for _, a := range cycle.Actions {
		for _, text := range a.Execution.Warnings {
			tell(a.Host, text)
		}
		for _, o := range a.Execution.Outcomes {
			if text := remark(o); text != "" {
				tell(a.Host, text)
			}
		}
	}
	w.warned = now
}

// writeCycle prints 1.4.3's lines: the findings, then what was done. A finding
// about which nothing is done is told when that begins, not in every cycle.
func (w *cycleWriter) writeCycle(cycle controller.Cycle) error {
	out, before := w.out, w.decided
	w.decided = make(map[string]audit.Decision, len(cycle.Plan.Findings))
	shown := make(map[snapshot.Hostname]int)
	for i := range cycle.Plan.Findings {
		f := &cycle.Plan.Findings[i]
		decision := cycle.Decision(f)
		w.decided[f.ID] = decision
		if before[f.ID] == decision && slices.Contains(quiet, decision) {
			continue
		}
		if shown[f.Host]++; shown[f.Host] == maxFindingsShown+1 {
			_, _ = fmt.Fprintln(out, on(f.Host, "… and more findings; --format json has them all")) // the next line would fail too
		}
		if shown[f.Host] > maxFindingsShown {
			continue
		}
		if _, err := fmt.Fprintln(out, printable(on(f.Host, f.String()+waitOf(f, cycle.Start)))); err != nil {
			return err
		}
	}
	if cycle.DryRun {
		return writeIntentions(out, cycle.Plan)
	}
	for _, a := range cycle.Actions {
		for _, text := range a.Execution.Lines {
			if _, err := fmt.Fprintln(out, printable(oneLine(on(a.Host, text)))); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxFindingsShown is how many findings of a host a cycle shows to people: one
// that makes up processes must not fill the screen.
const maxFindingsShown = 256

// waitOf says why nothing is done about a finding; empty when something is, or
// would be, as in 1.4.3.
func waitOf(f *enforce.Finding, now time.Time) string {
	left := f.Due.Sub(now).Round(time.Second)
	switch {
	case f.Waits != "":
		return fmt.Sprintf(" (waits: %s)", f.Waits)
	case f.Pending && left > 0:
		return fmt.Sprintf(" (waits for %s)", left)
	case f.Pending:
		return " (waits for more cycles)"
	case len(f.Stuck) > 0:
		return fmt.Sprintf(" (process %d cannot be ended)", f.Stuck[0].PID)
	}
	return ""
}

// because is the reasons of an intention.
func because(why []string) string {
	if len(why) == 0 {
		return ""
	}
	return " because: " + strings.Join(why, "; ")
}

// writeIntentions prints what a dry run leaves undone.
func writeIntentions(out io.Writer, plan enforce.Plan) error {
	for _, r := range plan.Reports {
		for _, d := range r.Report.Detach {
			if _, err := fmt.Fprintln(out, printable(on(r.Host, d.Intention()+because(d.Why)))); err != nil {
				return err
			}
		}
		for _, t := range r.Report.Terminate {
			if _, err := fmt.Fprintln(out, printable(on(r.Host, t.Intention()+because(t.Why)))); err != nil {
				return err
			}
		}
	}
	return nil
}

// on puts a host in front of a line; this machine has no name.
func on(host snapshot.Hostname, text string) string {
	if host == "" {
		return text
	}
	return fmt.Sprintf("[%s] %s", host, text)
}

// failuresOfCycle lists the hosts that did not answer, and those of which
// nobody knows whether they did what they were sent.
func failuresOfCycle(cycle controller.Cycle) []failure {
	failures := []failure{}
	for _, h := range cycle.Cluster.Failed() {
		failures = append(failures, failureOf(string(h.Name), h.Err))
	}
	for _, a := range cycle.Actions {
		if a.Err != nil {
			failures = append(failures, failureOf(string(a.Host), a.Err))
		}
	}
	return failures
}

// enforceDocument is the JSON of one cycle; docs/json.md describes it.
type enforceDocument struct {
	Schema   string            `json:"schema"`
	Cycle    int               `json:"cycle"`
	Time     string            `json:"time"`
	TookMS   float64           `json:"took_ms"`
	DryRun   bool              `json:"dry_run"`
	Hosts    int               `json:"hosts"`
	Answered int               `json:"answered"`
	Via      map[string]string `json:"via"`
	Findings []findingDocument `json:"findings"`
	Notes    []enforce.Note    `json:"notes"`
	Reports  []reportDocument  `json:"reports"`
	Failed   []failure         `json:"failed"`
	// Held says why the limits held the cycle back, and Unrecorded why the
	// record could not be kept.
	Held       string         `json:"held,omitempty"`
	HeldHost   string         `json:"held_host,omitempty"`
	Unrecorded string         `json:"unrecorded,omitempty"`
	Told       []toldDocument `json:"told"`
}

// toldDocument is a user who was told of a finding.
type toldDocument struct {
	Host      snapshot.Hostname `json:"host,omitempty"`
	UID       snapshot.UID      `json:"uid"`
	ID        string            `json:"id"`
	Terminals int               `json:"terminals"`
	Error     string            `json:"error,omitempty"`
}

type findingDocument struct {
	enforce.Finding
	Line     string         `json:"line"`
	Decision audit.Decision `json:"decision"`
}

type reportDocument struct {
	Host      snapshot.Hostname   `json:"host"`
	Terminate []terminateDocument `json:"terminate"`
	Detach    []enforce.DeviceRef `json:"detach"`
	// Sent says that the host was told; lines and outcomes are its answer.
	Sent     bool              `json:"sent"`
	Lines    []string          `json:"lines"`
	Outcomes []enforce.Outcome `json:"outcomes"`
}

type terminateDocument struct {
	PID     snapshot.PID           `json:"pid"`
	EID     snapshot.EnvID         `json:"eid,omitempty"`
	Devices []snapshot.DeviceIndex `json:"devices"`
}

func enforceDocumentOf(cycle controller.Cycle, failures []failure) enforceDocument {
	document := enforceDocument{
		Schema: "genv.remote.enforce/1", Cycle: cycle.Number, Time: cycle.Start.Format("2006-01-02T15:04:05.000Z07:00"),
		TookMS: math.Round(cycle.Took.Seconds()*1e6) / 1e3,
		DryRun: cycle.DryRun, Hosts: len(cycle.Cluster.Hosts), Answered: len(cycle.Cluster.Answered()),
		Via:      viaOf(cycle),
		Findings: []findingDocument{}, Notes: append([]enforce.Note{}, cycle.Plan.Notes...), Reports: []reportDocument{}, Failed: failures,
	}
	for i := range cycle.Plan.Findings {
		f := &cycle.Plan.Findings[i]
		document.Findings = append(document.Findings, findingDocument{Finding: *f, Line: f.String(), Decision: cycle.Decision(f)})
	}
	document.Held, document.HeldHost, document.Told = cycle.Plan.Held, string(cycle.Plan.HeldHost), []toldDocument{}
	if cycle.Unrecorded != nil {
		document.Unrecorded = cycle.Unrecorded.Error()
	}
	for _, t := range cycle.Told {
		told := toldDocument{Host: t.Host, UID: t.UID, ID: t.ID, Terminals: t.Terminals}
		if t.Err != nil {
			told.Error = t.Err.Error()
		}
		document.Told = append(document.Told, told)
	}
	for _, r := range cycle.Plan.Reports {
		document.Reports = append(document.Reports, reportDocumentOf(r, cycle.Actions))
	}
	return document
}

func viaOf(cycle controller.Cycle) map[string]string {
	via := make(map[string]string, len(cycle.Via))
	for host, v := range cycle.Via {
		via[string(host)] = string(v)
	}
	return via
}

func reportDocumentOf(r enforce.HostReport, actions []controller.Action) reportDocument {
	document := reportDocument{Host: r.Host, Terminate: []terminateDocument{}, Detach: []enforce.DeviceRef{}, Lines: []string{}, Outcomes: []enforce.Outcome{}}
	for _, t := range r.Report.Terminate {
		document.Terminate = append(document.Terminate, terminateDocument{PID: t.Process.PID, EID: t.Process.EID, Devices: t.Process.Indices()})
	}
	for _, d := range r.Report.Detach {
		document.Detach = append(document.Detach, enforce.DeviceRef{Host: r.Host, Index: d.Device, EID: d.Environment.EID})
	}
	for _, a := range actions {
		if a.Host == r.Host {
			document.Sent = true
			document.Lines = append(document.Lines, a.Execution.Lines...)
			document.Outcomes = append(document.Outcomes, a.Execution.Outcomes...)
		}
	}
	return document
}
