package host

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

func (p *hostCommands) usageCommand() *cli.Command {
	part, format, token, idle := "", "", "", 10*time.Minute
	return &cli.Command{
		Name: "usage", Usage: "commands that a controller runs on this host",
		Subcommands: []*cli.Command{
			{
				Name: "snapshot", Usage: "print the GPUs, environments and processes of this host, as JSON",
				Flags: []cli.Flag{
					command.String(&part, "type", "only one `PART`: devices, envs, processes or queue").
						OneOf("devices", "envs", "processes", "queue"),
					command.FormatFlag(&format, "json"),
				},
				Action: func(c *cli.Context) error { return p.usageSnapshot(c, part) },
			},
			{
				Name: "execute", Usage: "carry out the order on stdin, and print a line for each action",
				Action: p.usageExecute,
			},
			p.usageWaitCommand(),
			{
				Name:  "serve",
				Usage: "answer a controller's requests on stdin and stdout until it closes the connection",
				Flags: []cli.Flag{
					command.String(&token, "token", "begin the greeting with `TOKEN`, so that it is found after "+
						"banners; otherwise the first line of stdin has it"),
					command.Duration(&idle, "idle", "end after this `TIME` without a request, in seconds or as 10m"),
				},
				Action: func(c *cli.Context) error { return p.usageServe(c, token, idle) },
			},
		},
	}
}

func (p *hostCommands) usageSnapshot(c *cli.Context, part string) error {
	host := p.openHost()
	host.Machine.Brief = true
	document, warnings, err := host.document(c.Context, part)
	if err == nil {
		p.Warn(warnings...)
		_, err = p.Out.Write(append(document, '\n'))
	}
	return err
}

func (h *host) document(ctx context.Context, part string) (document []byte, warnings []string, err error) {
	if document, ok, warning := h.rootsView(ctx, part); ok {
		return document, nil, nil
	} else if warning != "" {
		defer func() { warnings = append(warnings, warning) }()
	}
	switch part {
	case "":
		return encoded(ctx, h.wholeSnapshot, snapshot.EncodeSnapshot)
	case "devices":
		return encoded(ctx, h.Machine.Devices, snapshot.EncodeDevices)
	case "envs":
		return encoded(ctx, h.Machine.Environments, snapshot.EncodeEnvironments)
	case "processes":
		return encoded(ctx, h.processes, snapshot.EncodeProcesses)
	case "queue":
		return encoded(ctx, h.queue, snapshot.EncodeNative)
	}
	return nil, nil, command.WrongFlag("type", " %q: write devices, envs, processes or queue", part)
}

func encoded[T any](
	ctx context.Context, read func(context.Context) (T, []string, error), encode func(T) ([]byte, error),
) ([]byte, []string, error) {
	part, warnings, err := read(ctx)
	if err != nil {
		return nil, nil, err
	}
	document, err := encode(part)
	return document, warnings, err
}

func (h *host) wholeSnapshot(ctx context.Context) (*snapshot.Snapshot, []string, error) {
	s, err := h.Machine.Snapshot(ctx)
	if err != nil {
		return nil, nil, err
	}
	return s, append(s.Warnings, inexpressible(s.Processes)...), nil
}

// queue is the part of the queue and reservations that every login may see; nil if unknown.
func (h *host) queue(context.Context) (*snapshot.Snapshot, []string, error) {
	booked, _ := h.Store.Reservations()
	owned, err := h.Served() // without root's service anyone could write them
	return &snapshot.Snapshot{
		Service: &owned, Waits: service.Waits(disk.RunDir(h.getenv), h.mayRun), Reservations: booked,
	}, nil, err
}

func (h *host) processes(ctx context.Context) ([]snapshot.Process, []string, error) {
	processes, warnings, err := h.Machine.Processes(ctx)
	return processes, append(warnings, inexpressible(processes)...), err
}

// inexpressible is about processes that 1.4.3's format can't describe.
func inexpressible(processes []snapshot.Process) []string {
	var warnings []string
	for i := range processes {
		if p := &processes[i]; !p.EnvUnknown && !p.Expressible() {
			warnings = append(warnings, fmt.Sprintf("left out process %d: the memory that it uses is unknown", p.PID))
		}
	}
	return warnings
}

func (p *hostCommands) usageExecute(c *cli.Context) error {
	input, err := io.ReadAll(io.LimitReader(p.In, order.MaxBytes+1))
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	given, err := order.Decode143(input)
	if err != nil {
		return command.UsageError("the order on stdin: %w", err)
	}
	host := p.openHost()
	var asker ending.Authority
	if f := p.openFence(host); f != nil {
		if err := f.Admit(nil); err != nil {
			return err
		}
		asker.Hold = func() (func(), error) { return f.Hold(nil) }
	}
	// The order continues even if the controller closes the connection.
	signal.Ignore(syscall.SIGPIPE)
	outcomes, warnings := host.carryOut(c.Context, given, asker, func(line string) { fmt.Fprintln(p.Out, line) })
	for _, o := range outcomes {
		if text := enforcement.Remark(o); text != "" {
			p.Warn(text)
		}
	}
	p.Warn(warnings...)
	return nil
}

func (p *hostCommands) usageWaitCommand() *cli.Command {
	r, index := new(service.WaitRequest), ""
	return &cli.Command{
		Name:  "wait",
		Usage: "wait in the queue of this host until GPUs are kept for this user; end with stdin; print JSON lines",
		Flags: []cli.Flag{
			command.Int(&r.GPUs, "gpus", "wait for `N` free GPUs").AtLeast(1),
			command.String(&index, "index", "only these GPUs: `INDEX`, or several with commas"),
			command.String(&r.ID, "id", "`ID` of the wait, the same on all hosts"),
		},
		Action: func(c *cli.Context) error {
			if index != "" {
				if err := json.Unmarshal([]byte("["+index+"]"), &r.Suits); err != nil {
					return command.WrongFlag("index", " %q: write indices with commas", index)
				}
			}
			return p.usageWait(c.Context, r)
		},
	}
}

// usageWait fails with service.ErrNotRunning if the state isn't root's. When stdin is closed, an offer stays; a line on
// stdin withdraws it.
func (p *hostCommands) usageWait(ctx context.Context, r *service.WaitRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	host, offered := p.openHost(), false
	go func() {
		defer cancel()
		if n, _ := p.In.Read(make([]byte, 1)); n > 0 {
			_ = host.Service.Withdraw(ctx, r.ID) // on error the offer expires in a minute
		}
	}()
	_, err := host.Service.Wait(ctx, *r, func(place *service.QueuePlace) {
		switch {
		case place == nil:
		case offered, json.NewEncoder(p.Out).Encode(place) != nil: // the offer expired, or the client has gone
			cancel()
		default:
			offered = place.Offered != nil
		}
	})
	if offered {
		err = nil
	}
	return err
}
