package enforcement

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// intentions prints what a dry run leaves undone, unless the last cycle printed it: what is due, then what waits.
func (w *cycleWriter) intentions(round *controller.Round) {
	intended, due := make(map[string]bool), make(map[any]bool)
	say := func(host snapshot.Hostname, what, when string, why ...string) {
		key, line := on(host, what), what+when
		if when != "" {
			key += " later"
		}
		if len(why) > 0 {
			line += " because: " + strings.Join(why, "; ")
		}
		if !w.intended[key] && !intended[key] {
			w.print(host, line)
		}
		intended[key] = true
	}
	for _, o := range round.Plan.Orders {
		for _, d := range o.Order.Detach {
			say(o.Host, "Would detach "+d.Object(), "", d.Why...)
			due[enforce.DeviceRef{Host: o.Host, Index: d.Device, EID: d.Environment.EID}] = true
		}
		for _, t := range o.Order.Terminate {
			say(o.Host, "Would terminate "+t.Object(), "", t.Why...)
			due[enforce.ProcessRef{Host: o.Host, PID: t.Process.PID}] = true
		}
	}
	hosts := make(map[snapshot.Hostname]*snapshot.Snapshot)
	for _, h := range round.Cluster.Answered() {
		hosts[h.Name] = h.Snapshot
	}
	for i := range round.Plan.Findings {
		f := &round.Plan.Findings[i]
		if !f.Pending || f.BlockedBy != "" {
			continue
		}
		when := " after more cycles, if it lasts,"
		if left := f.Due.Sub(round.Start); left > 0 {
			when = fmt.Sprintf(" in %s, if it lasts,", text.ShortDuration(max(left, time.Second)))
		}
		for _, ref := range f.Detach {
			if s := hosts[ref.Host]; s != nil && s.Environment(ref.EID) != nil && !due[ref] {
				d := order.Detachment{Device: ref.Index, Environment: *s.Environment(ref.EID)}
				say(ref.Host, "Would detach "+d.Object(), when, f.Line())
			}
		}
		for _, ref := range f.Terminate {
			if s := hosts[ref.Host]; s != nil && !due[ref] {
				at := slices.IndexFunc(s.Processes, func(p snapshot.Process) bool { return p.PID == ref.PID })
				if outside := f.Rule == enforce.RuleNonEnvProcesses; at >= 0 {
					t := order.Termination{Process: s.Processes[at], InNoEnvironment: &outside}
					say(ref.Host, "Would terminate "+t.Object(), when, f.Line())
				}
			}
		}
	}
	w.intended = intended
}

// wouldBeDone respects safety limits, and counts what waits for a warning.
func wouldBeDone(round *controller.Round) string {
	all, warned := newFound(), 0
	for i := range round.Plan.Findings {
		f := &round.Plan.Findings[i]
		if all.add(f, nil); f.Pending && f.BlockedBy == "" {
			warned++
		}
	}
	var parts []string
	if n := len(all.terminate); n > 0 {
		parts = append(parts, text.Plural(n, "process")+" would end")
	}
	if n := len(all.detach); n > 0 {
		parts = append(parts, text.Plural(n, "GPU")+" would be detached")
	}
	switch s := strings.Join(parts, ", "); {
	case s == "":
		return "nothing would be done"
	case warned == 0:
		return s
	case len(round.Plan.Orders) == 0:
		return s + ", after a warning"
	default:
		return s + ", some after a warning"
	}
}

func unmeasured(round *controller.Round) string {
	hosts := round.Cluster.Hosts
	judged := func(h snapshot.Host) bool {
		query := enforce.Query{Host: h.Name, Labels: h.Labels, At: round.Now}
		return h.Snapshot != nil && round.Policy.Settings(query).Idle != nil
	}
	if round.Number > 1 || !slices.ContainsFunc(hosts, judged) {
		return ""
	}
	return "; what is idle isn't known after one look"
}

func uncounted(u enforce.Uncounted) string {
	if u.Processes == 0 {
		return ""
	}
	people := "1 person"
	if u.People != 1 {
		people = fmt.Sprintf("%d people", u.People)
	}
	return fmt.Sprintf("; %s of %s outside of environments don't count for caps and idle: `non-env-processes: count` "+
		"counts them", text.Plural(u.Processes, "process"), people)
}

// userDocument is what rules find of a user, each process and GPU once, and what would be done.
type userDocument struct {
	User      snapshot.Username   `json:"user"`           // or uid 1234 without a name, empty if unknown
	Rules     []enforce.Rule      `json:"rules"`          // of the findings
	Caps      []string            `json:"caps,omitempty"` // of the policy's list, with what counts for them
	Hosts     []snapshot.Hostname `json:"hosts"`          // empty for this machine
	Processes int                 `json:"processes"`      // that findings are about
	GPUs      int                 `json:"gpus"`           // that these processes use, or that would be detached
	// Terminate is how many of them would end, after warnings and within safety limits.
	Terminate int `json:"would_terminate"`
	Detach    int `json:"would_detach"` // likewise, attachments
}

type userTotals struct {
	userDocument
	processes, terminate map[enforce.ProcessRef]bool
	gpus, detach         map[enforce.DeviceRef]bool // gpus: without environments
}

func newFound() *userTotals {
	return &userTotals{
		processes: make(map[enforce.ProcessRef]bool), terminate: make(map[enforce.ProcessRef]bool),
		gpus: make(map[enforce.DeviceRef]bool), detach: make(map[enforce.DeviceRef]bool),
	}
}

func (f *userTotals) add(finding *enforce.Finding, uses map[enforce.ProcessRef][]snapshot.DeviceIndex) {
	f.Rules = append(f.Rules, finding.Rule)
	if finding.Cap != nil {
		f.Caps = append(f.Caps, finding.Cap.String())
	}
	acts := finding.BlockedBy == ""
	process := func(ref enforce.ProcessRef) {
		f.Hosts, f.processes[ref] = append(f.Hosts, ref.Host), true
		for _, index := range uses[ref] {
			f.gpus[enforce.DeviceRef{Host: ref.Host, Index: index}] = true
		}
	}
	if finding.PID != 0 {
		process(enforce.ProcessRef{Host: finding.Host, PID: finding.PID})
	}
	for _, stuck := range finding.Stuck {
		process(stuck.ProcessRef)
	}
	for _, ref := range finding.Terminate {
		if process(ref); acts {
			f.terminate[ref] = true
		}
	}
	for _, ref := range finding.Detach {
		f.Hosts = append(f.Hosts, ref.Host)
		if f.gpus[enforce.DeviceRef{Host: ref.Host, Index: ref.Index}] = true; acts {
			f.detach[ref] = true
		}
	}
}

func (f *userTotals) sum() userDocument {
	u := f.userDocument
	u.Rules, u.Caps, u.Hosts = distinct(u.Rules), distinct(u.Caps), distinct(u.Hosts)
	u.Processes, u.GPUs, u.Terminate, u.Detach = len(f.processes), len(f.gpus), len(f.terminate), len(f.detach)
	return u
}

// distinct also removes "", the name of this machine.
func distinct[T ~string](list []T) []T {
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(one T) bool { return one == "" })
}

func byUser(round *controller.Round) []userDocument {
	uses := make(map[enforce.ProcessRef][]snapshot.DeviceIndex)
	for _, h := range round.Cluster.Answered() {
		for i := range h.Snapshot.Processes {
			p := &h.Snapshot.Processes[i]
			uses[enforce.ProcessRef{Host: h.Name, PID: p.PID}] = p.Indices()
		}
	}
	users := make(map[snapshot.Username]*userTotals)
	for i := range round.Plan.Findings {
		finding := &round.Plan.Findings[i]
		user := gpus.UserName(finding.User, finding.UID)
		if users[user] == nil {
			users[user] = newFound()
			users[user].User, users[user].Hosts = user, []snapshot.Hostname{}
		}
		users[user].add(finding, uses)
	}
	list := make([]userDocument, 0, len(users))
	for _, user := range slices.Sorted(maps.Keys(users)) {
		list = append(list, users[user].sum())
	}
	return list
}

func writeByUser(w io.Writer, users []userDocument) error {
	if len(users) == 0 {
		return nil // stderr says so
	}
	columns := []string{"USER", "PROCESSES", "GPUS", "WOULD-TERMINATE", "WOULD-DETACH", "RULES"}
	withCaps := slices.ContainsFunc(users, func(u userDocument) bool { return len(u.Caps) > 0 })
	withHosts := slices.ContainsFunc(users, func(u userDocument) bool { return len(u.Hosts) > 0 })
	if withCaps {
		columns = append(columns, "CAPS")
	}
	if withHosts {
		columns = append(columns, "HOSTS")
	}
	output := render.Output{Format: "tui"}
	t := output.Table(columns...)
	for i := range users {
		u := &users[i]
		row := []string{
			cmp.Or(output.Name(string(u.User)), "-"), strconv.Itoa(u.Processes), strconv.Itoa(u.GPUs),
			strconv.Itoa(u.Terminate), strconv.Itoa(u.Detach), strings.Join(texts(u.Rules), ","),
		}
		if withCaps {
			row = append(row, strings.Join(u.Caps, ", "))
		}
		if withHosts {
			row = append(row, strings.Join(text.CompactHosts(texts(u.Hosts)), ","))
		}
		t.Add(row...)
	}
	return t.Write(w) //nolint:wrapcheck // an error of stdout
}

func texts[T ~string](list []T) (all []string) {
	for _, one := range list {
		all = append(all, string(one))
	}
	return all
}
