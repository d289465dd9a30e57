package controller

import "github.com/seed-3119e985/genv/enforce"

// FleetMemory is what a controller keeps from cycle to cycle, and on disk from run to run.
// It is replaced after a cycle that counts: one that was judged, and recorded if there
// is a record. Otherwise it stays as it was, as if there had been no such cycle.
type FleetMemory struct {
	Rules    enforce.Memory `json:"rules"`
	Machines Machines       `json:"machines"`
	Messages MessageLimit   `json:"messages"`

	unrecorded string // why the record could not be kept in the last cycle
}
