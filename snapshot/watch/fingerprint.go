package watch

import (
	"crypto/sha256"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// fingerprint identifies what a look showed of what rules judge: which processes use which
// devices, environments and attachments. Measured values change with every look, and are not
// in it.
type fingerprint [sha256.Size]byte

// SameUse reports whether two looks show the same processes on the same devices, environments
// and attachments.
func SameUse(a, b *snapshot.Snapshot) bool { return fingerprintOf(a) == fingerprintOf(b) }

func fingerprintOf(s *snapshot.Snapshot) (sum fingerprint) {
	h := sha256.New()
	for i := range s.Processes {
		p := &s.Processes[i]
		fmt.Fprintf(h, "p %d %d %q %v\n", p.PID, p.Start, p.EID, p.Indices())
	}
	for i := range s.Environments {
		e := &s.Environments[i]
		fmt.Fprintf(h, "e %q %d %v\n", e.EID, e.UID, e.PIDs)
	}
	for i := range s.Devices {
		for _, a := range s.Devices[i].Attachments {
			fmt.Fprintf(h, "a %d %q %s\n", s.Devices[i].Index, a.EID, a.GPUMemory)
		}
	}
	h.Sum(sum[:0])
	return sum
}
