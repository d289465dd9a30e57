package localhost

import (
	"context"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// toldWithin is how long root's service may take to say what the policy allows: it may ask the controller.
const toldWithin = 4 * time.Second

// Told is what the controller of this host told it about who asks; nil if there is none, or that is unknown. Only where
// the state is root's a service knows it.
func Told(ctx context.Context, p command.Program) *service.Allowance {
	here := Open(p)
	if owner, err := here.Store.Owner(); err != nil || owner == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, toldWithin)
	defer cancel()
	told, err := here.Service.Allowance(ctx)
	if err != nil {
		return nil
	}
	return told
}
