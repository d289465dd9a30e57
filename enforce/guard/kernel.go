package guard

import (
	"context"

	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/snapshot"
)

// Kernel is the guard in the kernel: see kernel.Guard.
type Kernel interface {
	SetMinors(guarded, watched kernel.Minors) error
	SetAllowed(allowed map[snapshot.UID]kernel.Minors) error
	SetControl(control kernel.Control) error
	State() (kernel.State, error)
	Events(ctx context.Context, handle func(kernel.Event)) error
	Close() error
}
