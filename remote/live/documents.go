package live

import (
	"slices"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// EventsDocument is the document genv.live.events/1. The numbers of events begin again with each Run.
type EventsDocument struct {
	Schema string       `json:"schema"`
	Run    string       `json:"run"`
	Last   uint64       `json:"last"`   // the number of the last one, to ask for those after it
	Missed uint64       `json:"missed"` // how many are no longer kept
	Events []FleetEvent `json:"events"`
}

func hostDocument(f *FleetState, name string) (document any, found bool) {
	i := slices.IndexFunc(f.Hosts, func(h FleetHost) bool { return string(h.Name) == name })
	if i < 0 {
		return nil, false
	}
	about := func(finding *Finding) bool { return finding.Host == f.Hosts[i].Name }
	return struct {
		Schema string `json:"schema"`
		FleetHost
		Findings []Finding `json:"findings"`
	}{"genv.live.host/1", f.Hosts[i], selected(f.Findings, about)}, true
}

func userDocument(f *FleetState, name string) (document any, found bool) {
	i := slices.IndexFunc(f.Users, func(u FleetUser) bool { return string(u.Name) == name })
	if i < 0 {
		return nil, false
	}
	user := f.Users[i]
	about := func(finding *Finding) bool { return finding.User == user.Name }
	return struct {
		Schema string `json:"schema"`
		FleetUser
		GPUs     []gpus.Row `json:"gpus"`
		Findings []Finding  `json:"findings"`
	}{"genv.live.user/1", user, append([]gpus.Row{}, f.GPUsOf(user.Name)...), selected(f.Findings, about)}, true
}

// GPUsOf returns the GPUs that are attached to a user's environments, or used by the user.
func (f *FleetState) GPUsOf(user snapshot.Username) (rows []gpus.Row) {
	for h := range f.Hosts {
		for g := range f.Hosts[h].GPUs {
			if gpu := &f.Hosts[h].GPUs[g]; slices.Contains(gpu.Users(), user) {
				rows = append(rows, gpus.Row{Host: f.Hosts[h].Name, GPU: gpu})
			}
		}
	}
	return rows
}

func selected[T any](list []T, is func(*T) bool) []T {
	return append([]T{}, slices.DeleteFunc(slices.Clone(list), func(v T) bool { return !is(&v) })...)
}

// GPUs is who uses which GPU, and which are free. Those of hosts that failed aren't counted.
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
	// Reservations are those that have not ended.
	Reservations []Reservation `json:"reservations,omitempty"`
	// Waits are who waits for GPUs there; missing where there is no queue, and in what a controller serves.
	Waits []snapshot.Wait `json:"waits,omitzero"`
}

// ListGPUs lists the GPUs of hosts.
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

// AllGPUs lists the GPUs of the hosts that answer.
func (f *FleetState) AllGPUs() *GPUs {
	hosts := make([]HostGPUs, 0, len(f.Hosts))
	for i := range f.Hosts {
		if h := &f.Hosts[i]; h.Failure == nil {
			hosts = append(hosts, HostGPUs{h.Name, h.Via, h.GPUs, h.Warnings, h.Reservations, nil})
		}
	}
	return ListGPUs(hosts, f.Failed, f.Duplicates)
}
