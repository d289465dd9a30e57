package proc

import (
	"os"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Quota limits reading for one account in one look: its many or slow processes, or files, delay no one else.
type Quota struct {
	spent time.Duration
	files int // in which device nodes were looked for
}

// How much of its quota an account may spend on what. Together with slow stats it costs a look a second.
const (
	maxReadTime  = 500 * time.Millisecond // on what a ReaderProcess reads
	maxStallTime = 700 * time.Millisecond // and on what stalls that
	maxNodeTime  = 950 * time.Millisecond // and on device nodes
	maxNodeFiles = 1 << 16
)

// left is what is left of so much time; without a Quota, all of it.
func (q *Quota) left(most time.Duration) time.Duration {
	if q == nil {
		return most
	}
	return max(0, most-q.spent)
}

// spend counts the time until done is called.
func (q *Quota) spend() (done func()) {
	if q == nil {
		return func() {}
	}
	began := time.Now()
	return func() { q.spent += max(1, time.Since(began)) }
}

// Payer is who shares a Quota: a user or, since it may be any user's, a container of root's.
type Payer struct {
	UID       snapshot.UID
	Container string // empty for none
}

// Quotas are those of one look.
type Quotas map[Payer]*Quota

// Of is the Quota of an account. The person as whom this runs has ten times as much, unless that is root: they make
// nothing slow but for themselves, and what isn't read may be a job of theirs.
func (q Quotas) Of(a Payer) *Quota {
	if q[a] == nil {
		q[a] = &Quota{}
		if a.UID != 0 && int(a.UID) == os.Geteuid() {
			q[a].spent = -9 * maxReadTime
		}
	}
	return q[a]
}
