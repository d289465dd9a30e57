package usage

import "github.com/seed-3119e985/genv/snapshot"

// Amounts are what is counted. Times are in seconds of a device: two devices for an hour are
// 7,200.
type Amounts struct {
	Attached  int64
	Used      int64 // a process was on it
	Computing int64 // used, with a utilization over 5 %
	Idle      int64 // attached, and no process was on it
	// Unknown is the time in which the host didn't answer, for what was attached before. It is
	// in none of the other times.
	Unknown int64
	// Unmeasured is the part of Used for which the driver reports no utilization, so that it
	// isn't known if it is Computing, and the part of Attached for which it doesn't report
	// processes, so that it isn't known if it is Idle.
	Unmeasured int64
	// Memory is what processes used, in MiB times seconds. Processes of which the driver
	// reports no memory are not in it.
	Memory     int64
	Findings   int64 // new violations of rules
	Terminated int64 // processes that were ended, or signalled on hosts that can't say more
	Detached   int64
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

// Key says what amounts are about: an environment of a user on a device, in an hour.
type Key struct {
	Hour int64 // when it begins, in seconds since 1970
	// Host is empty for what is about a user on several hosts, as a cap is.
	Host   snapshot.Hostname
	Device snapshot.DeviceIndex // NoDevice for what is about none
	Model  string               // of the device; empty if the driver doesn't report it
	User   snapshot.Username    // as gpus.UserName; empty if it isn't known
	EID    snapshot.EnvID       // empty for processes in no environment
}

// NoDevice is the Device of what is about no single device.
const NoDevice snapshot.DeviceIndex = -1

// Kind is by what a sum is.
type Kind int

// The kinds of sums. They are stored as these numbers.
const (
	ByUser Kind = iota + 1
	ByHost
	ByModel
	OfAll // the fleet; its Name is empty
)

// SumKey says what a sum is about, in an hour.
type SumKey struct {
	Hour int64
	Kind Kind
	Name string // of the user, host or model; may be empty as in Key
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

// Batch is what was counted since the last one.
type Batch struct {
	Rows map[Key]Amounts
	Sums map[SumKey]Sum
}

// NewBatch returns an empty one.
func NewBatch() Batch { return Batch{Rows: make(map[Key]Amounts), Sums: make(map[SumKey]Sum)} }

// Merge adds what another batch has.
func (b *Batch) Merge(other *Batch) {
	for key, amounts := range other.Rows {
		b.add(key, &amounts, 1)
	}
	for key := range other.Sums {
		sum := other.Sums[key]
		b.addSum(key, &sum)
	}
}

func (b *Batch) add(key Key, amounts *Amounts, n int64) {
	total := b.Rows[key]
	total.add(amounts, n)
	b.Rows[key] = total
}

func (b *Batch) addSum(key SumKey, sum *Sum) {
	total := b.Sums[key]
	total.Add(sum)
	b.Sums[key] = total
}

// Size is the number of rows and sums.
func (b *Batch) Size() int { return len(b.Rows) + len(b.Sums) }

// DropOldestHour removes the first hour and returns when it began, so that what can't be
// stored doesn't fill the memory. It is false if the batch is empty.
func (b *Batch) DropOldestHour() (hour int64, ok bool) {
	for key := range b.Sums {
		if !ok || key.Hour < hour {
			hour, ok = key.Hour, true
		}
	}
	for key := range b.Rows {
		if !ok || key.Hour < hour {
			hour, ok = key.Hour, true
		}
	}
	for key := range b.Rows {
		if key.Hour == hour {
			delete(b.Rows, key)
		}
	}
	for key := range b.Sums {
		if key.Hour == hour {
			delete(b.Sums, key)
		}
	}
	return hour, ok
}
