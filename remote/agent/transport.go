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

// Capabilities are what can be asked of a host, apart from snapshots.
type Capabilities struct {
	Execute  bool // it carries out reports
	Outcomes bool // it returns an outcome for each item of a report
	Notify   bool // it shows messages to users
	Parallel bool // it answers other requests while it carries out reports
}

// transport is a way to ask a connected host. It is safe for concurrent use.
type transport interface {
	via() Via
	capabilities() Capabilities
	snapshot(ctx context.Context) (*snapshot.Snapshot, error)
	execute(ctx context.Context, report enforce.Report) (Execution, error)
	notify(ctx context.Context, messages []Message) ([]int, error)
	// close ends the calls that are under way.
	close()
}

// commandTransport runs a command for each request, as genv 1.4.3 understands it.
type commandTransport struct {
	Commands
	host remote.Host
}

func (*commandTransport) via() Via { return ViaCommands }
func (*commandTransport) capabilities() Capabilities {
	return Capabilities{Execute: true, Parallel: true}
}

func (t *commandTransport) snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	return t.Snapshot(ctx, t.host)
}

func (t *commandTransport) execute(ctx context.Context, report enforce.Report) (Execution, error) {
	return t.Execute(ctx, t.host, report)
}

func (t *commandTransport) notify(ctx context.Context, messages []Message) ([]int, error) {
	return t.Notify(ctx, t.host, messages)
}

func (*commandTransport) close() {}

// readOnlyTransport reads a host that has no genv.
type readOnlyTransport struct {
	runner remote.Runner
	host   remote.Host
}

func (*readOnlyTransport) via() Via                   { return ViaReadOnly }
func (*readOnlyTransport) capabilities() Capabilities { return Capabilities{Parallel: true} }

func (t *readOnlyTransport) snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	return readOnly(ctx, t.runner, t.host)
}

func (t *readOnlyTransport) execute(context.Context, enforce.Report) (Execution, error) {
	return Execution{}, remote.Errorf(remote.GenvMissing, "there is no genv on %s, so it is only read", t.host.Name)
}

func (*readOnlyTransport) notify(context.Context, []Message) ([]int, error) {
	return nil, ErrCannotNotify
}

func (*readOnlyTransport) close() {}
