package live

import (
	"bufio"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// HostDocument is the document genv.live.host/1.
type HostDocument struct {
	Schema string `json:"schema"`
	Host
	Findings []Finding `json:"findings"`
}

// UserDocument is the document genv.live.user/1.
type UserDocument struct {
	Schema string `json:"schema"`
	User
	GPUs     []gpus.Row `json:"gpus"` // attached to the user's environments, or used by the user
	Findings []Finding  `json:"findings"`
}

// Findings is the document genv.live.findings/1.
type Findings struct {
	Schema   string    `json:"schema"`
	Findings []Finding `json:"findings"`
}

// Events is the document genv.live.events/1. The numbers of events begin again with each Run.
type Events struct {
	Schema string  `json:"schema"`
	Run    string  `json:"run"`
	Last   uint64  `json:"last"`   // the number of the last one, to ask for those after it
	Missed uint64  `json:"missed"` // how many are no longer kept
	Events []Event `json:"events"`
}

// hostOf is a host with the findings about it; false if the fleet has no such host.
func hostOf(f *Fleet, name string) (HostDocument, bool) {
	i := slices.IndexFunc(f.Hosts, func(h Host) bool { return string(h.Name) == name })
	if i < 0 {
		return HostDocument{}, false
	}
	about := func(finding *Finding) bool { return finding.Host == f.Hosts[i].Name }
	return HostDocument{Schema: "genv.live.host/1", Host: f.Hosts[i], Findings: selected(f.Findings, about)}, true
}

// userOf is a user with GPUs and findings; false if the user has nothing.
func userOf(f *Fleet, name string) (UserDocument, bool) {
	i := slices.IndexFunc(f.Users, func(u User) bool { return string(u.Name) == name })
	if i < 0 {
		return UserDocument{}, false
	}
	user := f.Users[i]
	about := func(finding *Finding) bool { return finding.User == user.Name }
	document := UserDocument{Schema: "genv.live.user/1", User: user, GPUs: []gpus.Row{}, Findings: selected(f.Findings, about)}
	document.GPUs = append(document.GPUs, f.GPUsOf(user.Name)...)
	return document, true
}

// GPUsOf are those that are attached to a user's environments, or used by the user.
func (f *Fleet) GPUsOf(user snapshot.Username) (rows []gpus.Row) {
	for h := range f.Hosts {
		for g := range f.Hosts[h].GPUs {
			if gpu := &f.Hosts[h].GPUs[g]; slices.Contains(gpu.Users(), user) {
				rows = append(rows, gpus.Row{Host: f.Hosts[h].Name, GPU: gpu})
			}
		}
	}
	return rows
}

func selected(findings []Finding, about func(*Finding) bool) []Finding {
	list := []Finding{}
	for i := range findings {
		if about(&findings[i]) {
			list = append(list, findings[i])
		}
	}
	return list
}

// GPUs is who uses which GPU of a fleet, and which are free, as JSON shows it. It lists
// the hosts that answered; the GPUs of a host that failed are neither free nor counted.
type GPUs struct {
	Schema     string                 `json:"schema"` // genv.remote.gpus/1
	Total      int                    `json:"total"`
	Free       int                    `json:"free"`
	Hosts      []HostGPUs             `json:"hosts"` // in the administrator's order
	Failed     []remote.Failure       `json:"failed"`
	Duplicates []controller.Duplicate `json:"duplicates"`
}

// HostGPUs is a host that answered, with its GPUs by index.
type HostGPUs struct {
	Host     snapshot.Hostname `json:"host"`
	Via      agent.Via         `json:"via,omitempty"`
	GPUs     []gpus.GPU        `json:"gpus"`
	Warnings []string          `json:"warnings,omitempty"`
}

// ListGPUs lists the GPUs of hosts. It does not change them.
func ListGPUs(hosts []HostGPUs, failed []remote.Failure, duplicates []controller.Duplicate) *GPUs {
	list := &GPUs{
		Schema: "genv.remote.gpus/1", Hosts: append([]HostGPUs{}, hosts...),
		Failed: append([]remote.Failure{}, failed...), Duplicates: append([]controller.Duplicate{}, duplicates...),
	}
	var counts gpus.StateCounts
	for i := range hosts {
		counts.Add(hosts[i].GPUs...)
	}
	list.Total, list.Free = counts.Total(), counts.Free
	return list
}

// AllGPUs lists the GPUs of the hosts that answered in the last cycle.
func (f *Fleet) AllGPUs() *GPUs {
	hosts := make([]HostGPUs, 0, len(f.Hosts))
	for i := range f.Hosts {
		if h := &f.Hosts[i]; h.Failure == nil {
			hosts = append(hosts, HostGPUs{Host: h.Name, Via: h.Via, GPUs: h.GPUs, Warnings: h.Warnings})
		}
	}
	return ListGPUs(hosts, f.Failed, f.Duplicates)
}

// encoder encodes a Fleet. This is what costs most when somebody looks: hosts that haven't
// changed stay as they were encoded.
type encoder struct{ last *fleetText }

// fleetText is an encoded Fleet, in pieces. It is never changed.
type fleetText struct {
	run      string
	revision uint64
	rest     json.RawMessage // all but the hosts
	hosts    []hostText
}

// hostText is an encoded host, but for when it was seen.
type hostText struct {
	name    snapshot.Hostname
	changed uint64
	seen    time.Time
	whole   json.RawMessage
	same    json.RawMessage // for those who know the whole
}

// rest is a Fleet without its hosts.
type rest struct {
	*Fleet
	Hosts any `json:"hosts,omitempty"` // hides those of Fleet
}

// sameHost is a host that hasn't changed.
type sameHost struct {
	Name   snapshot.Hostname `json:"host"`
	Labels map[string]string `json:"labels,omitempty"`
	Via    agent.Via         `json:"via,omitempty"`
	Same   bool              `json:"same"`
}

// encode encodes a Fleet, or returns what it returned last if that is the same one.
func (e *encoder) encode(f *Fleet) (*fleetText, error) {
	if last := e.last; last != nil && last.run == f.Run && last.revision == f.Revision {
		return last, nil
	}
	body, err := json.Marshal(rest{Fleet: f})
	if err != nil {
		return nil, err
	}
	text := &fleetText{run: f.Run, revision: f.Revision, rest: body, hosts: make([]hostText, len(f.Hosts))}
	var before []hostText
	if e.last != nil {
		before = e.last.hosts
	}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if i < len(before) && before[i].name == h.Name && before[i].changed == h.Changed {
			text.hosts[i] = before[i]
		} else if text.hosts[i], err = encodeHost(*h); err != nil {
			return nil, err
		}
		text.hosts[i].seen = h.Seen
	}
	e.last = text
	return text, nil
}

func encodeHost(h Host) (text hostText, err error) {
	text.name, text.changed, h.Seen = h.Name, h.Changed, time.Time{}
	if text.whole, err = json.Marshal(h); err != nil {
		return text, err
	}
	text.same, err = json.Marshal(sameHost{h.Name, h.Labels, h.Via, true})
	return text, err
}

// writeTo writes the document. Of hosts that haven't changed after a revision it leaves out
// what their viewer knows.
func (t *fleetText) writeTo(w io.Writer, since uint64) error {
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.Write(open(t.rest)) // the error is that of Flush
	_, _ = out.WriteString(`,"hosts":[`)
	for i := range t.hosts {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		h := &t.hosts[i]
		if h.changed > since {
			_, _ = out.Write(open(h.whole))
		} else {
			_, _ = out.Write(open(h.same))
		}
		if !h.seen.IsZero() {
			_, _ = out.Write(h.seen.AppendFormat(append(out.AvailableBuffer(), `,"seen":"`...), time.RFC3339Nano))
			_ = out.WriteByte('"')
		}
		_ = out.WriteByte('}')
	}
	_, _ = out.WriteString("]}\n")
	return out.Flush()
}

// open is a JSON object without its last brace, so that fields can follow.
func open(object json.RawMessage) []byte { return object[:len(object)-1] }
