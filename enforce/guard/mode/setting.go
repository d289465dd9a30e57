package mode

import "github.com/seed-3119e985/genv/snapshot"

// Setting is what a policy says about the guard of a host.
type Setting struct {
	Mode Mode
	// These users may open every device; both are empty in mode Off.
	ExemptUsers []snapshot.Username
	ExemptUIDs  []snapshot.UID
}
