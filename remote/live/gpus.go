package live

import (
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// GPUs is who uses which GPU of a fleet, and which are free, as JSON shows it. It lists
// the hosts that answered; the GPUs of a host that failed are neither free nor counted.
type GPUs struct {
	Schema string     `json:"schema"` // genv.remote.gpus/1
	Total  int        `json:"total"`
	Free   int        `json:"free"`
	Hosts  []HostGPUs `json:"hosts"` // in the administrator's order
	// Failed and Duplicates are the hosts that are not in Hosts.
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

// GPUsOf lists the GPUs of hosts. It does not change them.
func GPUsOf(hosts []HostGPUs, failed []remote.Failure, duplicates []controller.Duplicate) *GPUs {
	list := &GPUs{
		Schema: "genv.remote.gpus/1", Hosts: append([]HostGPUs{}, hosts...),
		Failed: append([]remote.Failure{}, failed...), Duplicates: append([]controller.Duplicate{}, duplicates...),
	}
	for i := range hosts {
		list.Total += len(hosts[i].GPUs)
		for j := range hosts[i].GPUs {
			if hosts[i].GPUs[j].State == gpus.Free {
				list.Free++
			}
		}
	}
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
	return GPUsOf(hosts, f.Failed, f.Duplicates)
}
