package agent

import (
	"context"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// Via is how a host is asked. The texts appear in JSON.
type Via string

// The ways, the best first. Which one it is, is found out when a host is connected,
// and kept until the connection is lost.
const (
	ViaStream   Via = "stream"    // genv usage serve: a message per request
	ViaCommands Via = "commands"  // genv usage snapshot and execute: genv 1.4.3
	ViaReadOnly Via = "read-only" // no genv there: nvidia-smi and /proc
)

// transport is a way to ask a connected host: a *streamTransport, *Commands or
// *readOnly. It is safe for concurrent use.
type transport interface {
	via() Via
	Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error)
	Execute(ctx context.Context, host remote.Host, report enforce.Report) (Execution, error)
	// close ends the calls that are under way.
	close()
}
