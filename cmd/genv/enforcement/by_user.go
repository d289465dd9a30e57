package enforcement

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// userDocument is what rules find of a user, and what would be done. A process or GPU that several rules find
// counts once.
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

// found sums findings up.
type found struct {
	userDocument
	processes, terminate map[enforce.ProcessRef]bool
	gpus, detach         map[enforce.DeviceRef]bool // gpus have no environments
}

func newFound() *found {
	return &found{
		processes: make(map[enforce.ProcessRef]bool), terminate: make(map[enforce.ProcessRef]bool),
		gpus: make(map[enforce.DeviceRef]bool), detach: make(map[enforce.DeviceRef]bool),
	}
}

func (f *found) add(finding *enforce.Finding, uses map[enforce.ProcessRef][]snapshot.DeviceIndex) {
	f.Rules = append(f.Rules, finding.Rule)
	if finding.Cap != nil {
		f.Caps = append(f.Caps, finding.Cap.String())
	}
	acts := !finding.Held && finding.Waits == ""
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

// sum is what the findings come to.
func (f *found) sum() userDocument {
	u := f.userDocument
	u.Rules, u.Caps, u.Hosts = distinct(u.Rules), distinct(u.Caps), distinct(u.Hosts)
	u.Processes, u.GPUs, u.Terminate, u.Detach = len(f.processes), len(f.gpus), len(f.terminate), len(f.detach)
	return u
}

// distinct are the texts of a list, each once, sorted. This machine has no name.
func distinct[T ~string](list []T) []T {
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(one T) bool { return one == "" })
}

// byUser sums up the findings of a cycle by user, sorted by name.
func byUser(cycle *controller.Cycle) []userDocument {
	uses := make(map[enforce.ProcessRef][]snapshot.DeviceIndex)
	for _, h := range cycle.Cluster.Answered() {
		for i := range h.Snapshot.Processes {
			p := &h.Snapshot.Processes[i]
			uses[enforce.ProcessRef{Host: h.Name, PID: p.PID}] = p.Indices()
		}
	}
	users := make(map[snapshot.Username]*found)
	for i := range cycle.Plan.Findings {
		finding := &cycle.Plan.Findings[i]
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
		return nil // which is said on stderr
	}
	names := []string{"USER", "PROCESSES", "GPUS", "WOULD-TERMINATE", "WOULD-DETACH", "RULES"}
	withCaps := slices.ContainsFunc(users, func(u userDocument) bool { return len(u.Caps) > 0 })
	withHosts := slices.ContainsFunc(users, func(u userDocument) bool { return len(u.Hosts) > 0 })
	if withCaps {
		names = append(names, "CAPS")
	}
	if withHosts {
		names = append(names, "HOSTS")
	}
	output := render.Output{Format: "tui"}
	var columns []draw.ColumnLayout
	for _, name := range names {
		columns = append(columns, render.Col(name, 0))
	}
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
	return t.Write(w) //nolint:wrapcheck // it is of stdout
}

func texts[T ~string](list []T) (all []string) {
	for _, one := range list {
		all = append(all, string(one))
	}
	return all
}
