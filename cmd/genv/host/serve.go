package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
)

// gcPercentServed has the collector of garbage run seldom: there is little of
// it, and processor time is dearer to a host than some megabytes.
const gcPercentServed = 400

// devicesFor is for how long a served list of devices is used again. A process
// on a device that is not on it makes it be asked at once.
const devicesFor = time.Minute

func (p *program) usageServeCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "answer a controller's requests on stdin and stdout until it hangs up",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "token", Usage: "begin the greeting with `TOKEN`, so that it is found behind banners"},
			&cli.DurationFlag{Name: "idle", Value: 10 * time.Minute, Usage: "end when nothing was asked for this `TIME`"},
		},
		Action: p.usageServe,
	}
}

func (p *program) usageServe(c *cli.Context) error {
	if err := command.RefuseArguments(c); err != nil {
		return err
	}
	if idle := c.Duration("idle"); idle <= 0 {
		return command.Usage("--idle %s: write a duration such as 10m", idle)
	}
	if err := endWithParent(os.Getppid()); err != nil {
		return err
	}
	host, err := p.openHost()
	if err != nil {
		return err
	}
	host.Machine.DevicesFor = devicesFor
	host.Machine.Books = state.NewCache(host.Store)
	debug.SetGCPercent(gcPercentServed)
	server := &agent.Server{
		Token: c.String("token"), Idle: c.Duration("idle"), Handler: &served{host: host},
		Greeting: agent.Greeting{
			Protocol: agent.Version, Genv: p.Version,
			Capabilities: []string{agent.RequestSnapshot, agent.RequestExecute, agent.RequestNotify, agent.RequestPing},
		},
	}
	err = server.Serve(c.Context, p.In, p.Out)
	if errors.Is(err, agent.ErrIdle) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// endWithParent has the kernel send SIGTERM when the parent dies, which is sudo
// or the connection's sshd: nobody may be left on a host whom no controller
// asks. The kernel tells of deaths after prctl(2) alone, so a parent that is
// another one by then has died before.
func endWithParent(parent int) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("ask the kernel for the parent's death: %w", err)
	}
	if now := os.Getppid(); now != parent {
		return fmt.Errorf("the parent, process %d, has ended", parent)
	}
	return nil
}

// served answers one controller.
type served struct {
	host     *host
	revision uint64
	last     []byte // the snapshot of that revision, encoded
}

// Handle implements agent.Handler. A report that was begun is carried out to
// its end, even if the controller has hung up; a snapshot is not.
func (s *served) Handle(ctx context.Context, r agent.Request) ([]byte, error) {
	switch r.Name {
	case agent.RequestSnapshot:
		return s.snapshot(r.Wanted, r.Body)
	case agent.RequestExecute:
		return s.execute(ctx, r.Body)
	case agent.RequestNotify:
		return s.tell(r.Body)
	case agent.RequestPing:
		return r.Body, nil
	}
	return nil, fmt.Errorf("%q is no request of this version", r.Name)
}

func (s *served) snapshot(ctx context.Context, body []byte) ([]byte, error) {
	var request agent.SnapshotRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	now, err := s.host.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	encoded, err := snapshot.EncodeNative(now)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(encoded, s.last) {
		s.revision++
		s.last = encoded
	}
	answer := agent.SnapshotAnswer{Revision: s.revision}
	if request.Revision != s.revision {
		answer.Snapshot = encoded
	}
	return snapshot.Marshal(answer)
}

func (s *served) execute(ctx context.Context, body []byte) ([]byte, error) {
	var request agent.ExecuteRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	report, err := enforce.DecodeNativeReport(request.Report)
	if err != nil {
		return nil, err
	}
	if report.Grace, err = graceOf(request); err != nil {
		return nil, err
	}
	report.Kill, report.Unprotected, report.ID = request.Kill, request.Unprotected, request.ID
	report.SetReasons(request.Because)
	answer := agent.ExecuteAnswer{Lines: []string{}}
	say := func(line string) { answer.Lines = append(answer.Lines, line) }
	answer.Outcomes = s.host.carryOut(ctx, report, say)
	answer.Warnings = s.host.record.warnings()
	return json.Marshal(answer)
}

func graceOf(r agent.ExecuteRequest) (time.Duration, error) {
	if r.GraceMS < 0 || r.GraceMS > enforcement.MaxGrace.Milliseconds() {
		return 0, fmt.Errorf("a grace of %d ms: it is 0 to %s", r.GraceMS, enforcement.MaxGrace)
	}
	return time.Duration(r.GraceMS) * time.Millisecond, nil
}

// maxMessages is how much one request may have told.
const maxMessages = 1024

// tell shows messages to users on their terminals.
func (s *served) tell(body []byte) ([]byte, error) {
	var request agent.NotifyRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	if len(request.Messages) > maxMessages {
		return nil, fmt.Errorf("%d messages: at most %d are shown", len(request.Messages), maxMessages)
	}
	terminals, err := s.host.tell(request.Messages)
	if err != nil {
		return nil, err
	}
	return json.Marshal(agent.NotifyAnswer{Terminals: terminals})
}

// tell shows messages on this machine's terminals, and counts those.
func (h *host) tell(messages []agent.Message) ([]int, error) {
	here := enforcelocal.Terminals{Host: enforcelocal.Hostname()}
	terminals := make([]int, len(messages))
	if h.silent {
		return terminals, nil
	}
	for i, m := range messages {
		told, err := here.Tell(m.UID, m.Text)
		if err != nil {
			return nil, err
		}
		terminals[i] = told
	}
	return terminals, nil
}
