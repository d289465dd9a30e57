package agent

import (
	"context"
	"errors"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// RequestNotify is the request of `genv usage serve` that shows messages to users
// on their terminals, as write(1) does. Its name on the wire is older than its
// name here.
const RequestNotify = "tell"

// NotifyRequest has messages shown to users.
type NotifyRequest struct {
	Messages []Message `json:"messages"`
}

// Message is for the terminals of one user.
type Message struct {
	UID  snapshot.UID `json:"uid"`
	Text string       `json:"text"` // lines of plain text
}

// NotifyAnswer says on how many terminals each message was shown, in the order of
// the request. A user who is not logged in, or takes no messages, has none.
type NotifyAnswer struct {
	Terminals []int `json:"terminals"`
}

// ErrCannotNotify says that the genv on the host cannot show messages to users.
var ErrCannotNotify = errors.New("the genv there cannot tell users anything")

// Notify returns ErrCannotNotify: genv 1.4.3 has no such command.
func (Commands) Notify(context.Context, remote.Host, []Message) ([]int, error) {
	return nil, ErrCannotNotify
}
