package snapshot

// Cluster is what a controller knows of its hosts in one cycle, in the order in
// which the administrator named them.
type Cluster struct{ Hosts []Host }

// Host is one host of a Cluster: its Snapshot, or the error that stands in its
// place. A host that did not answer has no processes that anyone may count as
// zero: Snapshot is nil exactly when Err is not.
type Host struct {
	Name     Hostname
	Labels   map[string]string // the administrator's own words about the host
	Snapshot *Snapshot
	Err      error
}

// Answered lists the hosts that have a snapshot.
func (c Cluster) Answered() []Host {
	var hosts []Host
	for _, h := range c.Hosts {
		if h.Err == nil && h.Snapshot != nil {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// Failed lists the hosts that have none.
func (c Cluster) Failed() []Host {
	var hosts []Host
	for _, h := range c.Hosts {
		if h.Err != nil || h.Snapshot == nil {
			hosts = append(hosts, h)
		}
	}
	return hosts
}
