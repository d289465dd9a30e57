package snapshot

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

func (h *Host) answered() bool { return h.Err == nil && h.Snapshot != nil }

// Answered lists the hosts with a snapshot.
func (c Cluster) Answered() []Host { return c.where(true) }

// Failed lists the hosts without a snapshot.
func (c Cluster) Failed() []Host { return c.where(false) }

func (c Cluster) where(answered bool) (list []Host) {
	for i := range c.Hosts {
		if h := &c.Hosts[i]; h.answered() == answered {
			list = append(list, *h)
		}
	}
	return list
}

// CountAnswered is how many hosts have a snapshot.
func (c Cluster) CountAnswered() (n int) {
	for i := range c.Hosts {
		if c.Hosts[i].answered() {
			n++
		}
	}
	return n
}
