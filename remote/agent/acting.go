package agent

import (
	"context"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RequestActing asks which controller a host lets act. It looks at nothing else there.
const RequestActing = "acting"

// Acting is what a host says about the controller that it lets act.
type Acting struct {
	Lease *fence.Lease `json:"noted,omitempty"` // nil for none
	// Unknown is why the host can't say, and then it lets no controller act.
	Unknown string `json:"noted_unknown,omitempty"`
	// Refuses says that the host refuses other controllers; without that it gives no leases.
	Refuses bool `json:"-"`
}

func (a *Answers) acting(context.Context, struct{}) (answer Acting, err error) {
	if a.Fence == nil {
		return answer, nil
	}
	lease, err := a.Fence.Given()
	if err != nil {
		return Acting{Unknown: err.Error()}, nil
	}
	return Acting{Lease: lease}, nil
}

// maxUnknown is how long a reason of a host may be, in bytes.
const maxUnknown = 256

// bounded is the answer of a host with what can be true of it.
func (a Acting) bounded() Acting {
	b := Acting{Unknown: text.Cut(a.Unknown, maxUnknown), Refuses: true}
	if a.Lease != nil && a.Lease.Check() == nil {
		b.Lease = a.Lease
	}
	return b
}

// Acting asks a host which controller acts there. A genv that is too old to say it is an error of the
// class remote.Version.
func (p *Pool) Acting(ctx context.Context, host remote.Host) (Acting, error) {
	return onConn(p, host, func(c *Conn) (answer Acting, err error) {
		t, err := c.connected(ctx)
		if err != nil || !t.can().Fence {
			return answer, err
		}
		stream, ok := t.(*streamTransport)
		if !ok || !stream.stream.Greeting.Can(RequestActing) {
			return answer, remote.Errorf(remote.Version, "the genv there is too old to say which controller acts")
		}
		answer, err = request[Acting](ctx, c, stream, p.Timeout, RequestActing, struct{}{})
		return answer.bounded(), err
	})
}
