package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/stream"
	"github.com/seed-3119e985/genv/snapshot"
)

// devicesFor is for how long a served list of devices is used again. A process
// on a device that is not on it makes it be asked at once.
const devicesFor = time.Minute

func (p *program) usageServeCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "answer a controller's requests on stdin and stdout until it hangs up",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "token", Usage: "what the greeting begins with, so that it is found behind banners"},
			&cli.DurationFlag{Name: "idle", Value: 10 * time.Minute, Usage: "end when nothing was asked for so long"},
		},
		Action: p.usageServe,
	}
}

func (p *program) usageServe(c *cli.Context) error {
	if err := refuseArguments(c); err != nil {
		return err
	}
	// When sudo dies the kernel tells us: nobody may be left on a host that no
	// controller asks. prctl(2): the signal is for the death of the parent.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("ask the kernel for the parent's death: %w", err)
	}
	host, err := p.openHost()
	if err != nil {
		return err
	}
	host.machine.DevicesFor = devicesFor
	greeting := stream.Greeting{
		Protocol: stream.Version, Genv: version,
		Capabilities: []string{controller.RequestSnapshot, controller.RequestExecute, controller.RequestPing},
	}
	err = stream.Serve(c.Context, io.NopCloser(p.in), p.out, c.String("token"), greeting, &served{host: host}, c.Duration("idle"))
	if errors.Is(err, stream.ErrIdle) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// served answers one controller.
type served struct {
	host     *host
	revision uint64
	last     []byte // the snapshot of that revision, encoded
}

// Handle implements stream.Handler.
func (s *served) Handle(ctx context.Context, name string, body []byte) ([]byte, error) {
	switch name {
	case controller.RequestSnapshot:
		return s.snapshot(ctx, body)
	case controller.RequestExecute:
		return s.execute(ctx, body)
	case controller.RequestPing:
		return body, nil
	}
	return nil, fmt.Errorf("%q is no request of this version", name)
}

func (s *served) snapshot(ctx context.Context, body []byte) ([]byte, error) {
	var request controller.SnapshotRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	now, err := s.host.machine.Snapshot(ctx)
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
	answer := controller.SnapshotAnswer{Revision: s.revision}
	if request.Revision != s.revision {
		answer.Snapshot = encoded
	}
	return json.Marshal(answer)
}

func (s *served) execute(ctx context.Context, body []byte) ([]byte, error) {
	var request controller.ExecuteRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	report, err := enforce.DecodeNativeReport(request.Report)
	if err != nil {
		return nil, err
	}
	answer := controller.ExecuteAnswer{Lines: []string{}}
	say := func(line string) { answer.Lines = append(answer.Lines, line) }
	answer.Outcomes = s.host.carryOut(ctx, report, time.Duration(request.GraceMS)*time.Millisecond, say)
	return json.Marshal(answer)
}
