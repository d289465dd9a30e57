package agent

import (
	"context"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/readonly"
)

type readOnly struct{ readonly.Host }

func (readOnly) via() Via          { return ViaReadOnly }
func (readOnly) can() Capabilities { return Capabilities{Snapshot: true} }
func (readOnly) close()            {}

func (readOnly) Execute(_ context.Context, host remote.Host, _ order.Order) (Execution, error) {
	return Execution{}, remote.Errorf(remote.GenvMissing, "there is no genv on %s, so it is only read", host.Name)
}
