package usage

// Amounts are what is counted. Times are in seconds of a device: two devices for an hour are 7,200.
type Amounts struct {
	Attached  int64 `json:"attached_seconds"`
	Used      int64 `json:"used_seconds"`      // with a process on it
	Computing int64 `json:"computing_seconds"` // used with a utilization over 5 %
	Idle      int64 `json:"idle_seconds"`      // attached without a process
	// Unknown is the time without an answer of the host, for what was attached before. It is in no other time.
	Unknown int64 `json:"unknown_seconds"`
	// Unmeasured is the used time without a known utilization, and the attached time without known processes.
	Unmeasured int64 `json:"unmeasured_seconds"`
	// Memory is what processes used, as far as the driver reports it, in MiB times seconds.
	Memory     int64 `json:"memory_mib_seconds"`
	Findings   int64 `json:"findings"`   // new violations of rules
	Terminated int64 `json:"terminated"` // processes that were ended, or signalled on hosts with 1.4.3
	Detached   int64 `json:"detached"`
}

// Add adds other amounts.
func (a *Amounts) Add(b *Amounts) { a.add(b, 1) }

// add adds other amounts n times.
func (a *Amounts) add(b *Amounts, n int64) {
	a.Attached += n * b.Attached
	a.Used += n * b.Used
	a.Computing += n * b.Computing
	a.Idle += n * b.Idle
	a.Unknown += n * b.Unknown
	a.Unmeasured += n * b.Unmeasured
	a.Memory += n * b.Memory
	a.Findings += n * b.Findings
	a.Terminated += n * b.Terminated
	a.Detached += n * b.Detached
}

// Kind is by what a sum is.
type Kind int

// The kinds of sums. They are stored as these numbers.
const (
	OfUser Kind = iota + 1
	OfHost
	OfModel
	OfAll // the fleet; its Name is empty
)

// SumKey says what a sum is about, in an hour.
type SumKey struct {
	Hour int64
	Kind Kind
	// Name is that of a user as gpus.UserName, of a host or of a model. It is empty where that isn't known, or
	// for what is about several hosts, as a cap is, or about no device.
	Name string
}

// Sum is the amounts of many devices.
type Sum struct {
	Amounts
	Peak int64 // the most devices that were attached at a time
}

// Add adds the sum of another time.
func (s *Sum) Add(other *Sum) {
	s.Amounts.Add(&other.Amounts)
	s.Peak = max(s.Peak, other.Peak)
}

// Sums is what was counted since it was taken last.
type Sums map[SumKey]Sum

// Merge adds what others have.
func (s Sums) Merge(others Sums) {
	for key := range others {
		sum := others[key]
		s.Add(key, &sum)
	}
}

// Add adds the sum of another time.
func (s Sums) Add(key SumKey, sum *Sum) {
	total := s[key]
	total.Add(sum)
	s[key] = total
}

// DropOldestHour removes the first hour and returns when it began, so that what can't be
// stored doesn't fill the memory. It is false if there are no sums.
func (s Sums) DropOldestHour() (hour int64, ok bool) {
	for key := range s {
		if !ok || key.Hour < hour {
			hour, ok = key.Hour, true
		}
	}
	for key := range s {
		if key.Hour == hour {
			delete(s, key)
		}
	}
	return hour, ok
}
