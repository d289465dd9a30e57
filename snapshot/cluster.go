package snapshot

import "time"

// Cluster is the hosts of a controller in one cycle, in the order in which the administrator listed them.
type Cluster struct{ Hosts []Host }

// Host has its last Snapshot or an error, and before its first answer neither. No answer is not "no processes".
type Host struct {
	Name     Hostname
	Labels   map[string]string // chosen by the administrator
	Snapshot *Snapshot
	Err      error
	// AskedAt is by the monotonic clock; zero for just now. IsNew says that no cycle has judged the Snapshot before.
	AskedAt time.Time
	IsNew   bool
	// Round is that of the last tick before it was asked. Snapshots of one round count once where a policy counts
	// cycles. 0 is a round of its own.
	Round int
	Took  time.Duration // until the answer came
}

func (h *Host) answered() bool { return h.Err == nil && h.Snapshot != nil }

// Answered lists the hosts with a snapshot.
func (c Cluster) Answered() []Host { return c.where((*Host).answered) }

// Failed lists the hosts with an error.
func (c Cluster) Failed() []Host { return c.where(func(h *Host) bool { return h.Err != nil }) }

func (c Cluster) where(is func(*Host) bool) (list []Host) {
	for i := range c.Hosts {
		if h := &c.Hosts[i]; is(h) {
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
