package controller

import "github.com/seed-3119e985/genv/enforce"

// Memory is what a controller keeps from cycle to cycle, and on disk from run to run.
type Memory struct {
	Rules    enforce.Memory `json:"rules"`
	Machines Machines       `json:"machines"`
	Messages MessageLimit   `json:"messages"`

	unrecorded string // why the record could not be kept in the last cycle
}
