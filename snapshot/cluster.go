package snapshot

import "slices"

// Cluster is the hosts of a controller in one cycle, in the order in which the
// administrator listed them.
type Cluster struct{ Hosts []Host }

// Host is one host of a Cluster, with either its Snapshot or an error: a host that did
// not answer is not a host without processes.
type Host struct {
	Name     Hostname
	Labels   map[string]string // chosen by the administrator
	Snapshot *Snapshot
	Err      error
}

func (h Host) answered() bool { return h.Err == nil && h.Snapshot != nil }
func (h Host) failed() bool   { return !h.answered() }

// Answered lists the hosts with a snapshot.
func (c Cluster) Answered() []Host { return slices.DeleteFunc(slices.Clone(c.Hosts), Host.failed) }

// Failed lists the hosts without a snapshot.
func (c Cluster) Failed() []Host { return slices.DeleteFunc(slices.Clone(c.Hosts), Host.answered) }
