package enforce

import (
	"cmp"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// CapExcess is by how much a person, or people together, are over a cap of the policy's list.
type CapExcess struct {
	Name  string `json:"name,omitempty"`
	Place string `json:"place"` // in the policy
	// Counts says what Used and Limit are: GPUs, bytes, environments or seconds of GPUs.
	Counts   string    `json:"counts"`
	Used     int64     `json:"used"`
	Limit    int64     `json:"limit"`
	Together bool      `json:"together,omitempty"` // people share it
	Until    time.Time `json:"until,omitzero"`     // when the hours count from 0 again
	// Where are the GPUs that count for it; missing for environments.
	Where []CountedGPUs `json:"where,omitempty"`
	// WaitsFor says for whom they are lost, of a cap that holds as far as others wait: "bob waits for 2 GPUs".
	WaitsFor string `json:"waits_for,omitempty"`
	// Why says why just these are lost.
	Why string `json:"why,omitempty"`
}

// CountedGPUs are GPUs of a host that count for a cap.
type CountedGPUs struct {
	Host snapshot.Hostname      `json:"host,omitempty"`
	GPUs []snapshot.DeviceIndex `json:"gpus"`
}

// MaxWhere is how many hosts a finding names.
const MaxWhere = 64

// String is the cap with what counts for it, as in "a100: 3 of 2 GPUs".
func (e *CapExcess) String() string {
	used := fmt.Sprint(e.Used)
	if e.Counts == CapMemory.String() || e.Counts == CapHours.String() {
		used = e.Amount(e.Used)
	}
	return text.Shown(cmp.Or(e.Name, e.Place)) + ": " + used + " of " + e.Amount(e.Limit)
}

// String is what a cap counts, in JSON.
func (k CapKind) String() string {
	return [...]string{"gpus", "memory", "environments", "gpu-hours"}[k]
}

// Amount is so much of what a cap counts, in words.
func (e *CapExcess) Amount(n int64) string { return text.CapAmount(e.Counts, n) }

// line is the finding in plain English.
func (e *CapExcess) line(f *Finding) string {
	if e == nil { // of another version
		return "A cap of the policy is exceeded"
	}
	which := "a cap"
	if e.Name != "" {
		which = "cap " + text.Shown(e.Name)
	}
	where := ""
	if n := len(f.CountedOn); n > 1 {
		where = fmt.Sprintf(" on %d hosts", n)
	}
	if e.Counts == CapHours.String() {
		return fmt.Sprintf("User %s has GPUs, and %s of the %s that %s allows are used", f.User, e.Amount(e.Used),
			e.Amount(e.Limit), which)
	}
	if e.Together {
		return fmt.Sprintf("User %s is to give back GPUs: %sthose who share %s have %s%s, and %s allowed", f.User,
			e.whoWaits(), which, e.Amount(e.Used), where, e.allowed())
	}
	return fmt.Sprintf("User %s has %s%s, %sand %s allows %s", f.User, e.Amount(e.Used), where, e.whoWaits(), which,
		e.Amount(e.Limit))
}

// whoWaits is for whom it is, as the beginning of a sentence; empty for none.
func (e *CapExcess) whoWaits() string {
	if e.WaitsFor == "" {
		return ""
	}
	return e.WaitsFor + ", "
}

func (e *CapExcess) allowed() string {
	if e.Limit == 1 {
		return e.Amount(e.Limit) + " is"
	}
	return e.Amount(e.Limit) + " are"
}
