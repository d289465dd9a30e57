package host

import (
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/render"
)

// executeGrace is how long processes have to end when the report does not say,
// so that this host can tell what came of them. It lies well within a
// controller's deadline for a command.
const executeGrace = 10 * time.Second

func (p *program) usageCommand() *cli.Command {
	return &cli.Command{
		Name:  "usage",
		Usage: "what a controller runs on this host",
		Subcommands: []*cli.Command{
			{
				Name:   "snapshot",
				Usage:  "print what uses the devices of this host, as JSON",
				Flags:  []cli.Flag{&cli.StringFlag{Name: "type", Usage: "only one `PART`: devices, envs or processes"}},
				Action: p.usageSnapshot,
			},
			{
				Name:   "execute",
				Usage:  "carry out the report on stdin, and print a line for each thing done",
				Action: p.usageExecute,
			},
			p.usageServeCommand(),
		},
	}
}

func (p *program) usageSnapshot(c *cli.Context) error {
	if err := command.RefuseArguments(c); err != nil {
		return err
	}
	host, err := p.openHost()
	if err != nil {
		return err
	}
	host.Machine.Brief = true
	document, warnings, err := host.document(c, c.String("type"))
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintln(p.Err, render.Printable(w))
	}
	_, err = p.Out.Write(append(document, '\n'))
	return err
}

// document is the JSON for a part of the snapshot, or the whole.
func (h *host) document(c *cli.Context, part string) ([]byte, []string, error) {
	switch part {
	case "":
		s, err := h.Machine.Snapshot(c.Context)
		if err != nil {
			return nil, nil, err
		}
		return withWarnings(snapshot.EncodeSnapshot(s))(append(s.Warnings, unexpressed(s.Processes)...))
	case "devices":
		devices, warnings, err := h.Machine.Devices(c.Context)
		if err != nil {
			return nil, nil, err
		}
		return withWarnings(snapshot.EncodeDevices(devices))(warnings)
	case "envs":
		envs, warnings, err := h.Machine.Environments(c.Context)
		if err != nil {
			return nil, nil, err
		}
		return withWarnings(snapshot.EncodeEnvironments(envs))(warnings)
	case "processes":
		processes, warnings, err := h.Machine.Processes(c.Context)
		if err != nil {
			return nil, nil, err
		}
		return withWarnings(snapshot.EncodeProcesses(processes))(append(warnings, unexpressed(processes)...))
	}
	return nil, nil, command.Usage("--type %q: write devices, envs or processes", part)
}

func withWarnings(document []byte, err error) func([]string) ([]byte, []string, error) {
	return func(warnings []string) ([]byte, []string, error) { return document, warnings, err }
}

// unexpressed tells of the processes that the 1.4.3 format has no words for.
func unexpressed(processes []snapshot.Process) []string {
	var warnings []string
	for i := range processes {
		if p := &processes[i]; !p.EnvUnknown && !p.Expressible() {
			warnings = append(warnings, fmt.Sprintf("how much memory process %d uses is not known, so this format leaves it out", p.PID))
		}
	}
	return warnings
}

func (p *program) usageExecute(c *cli.Context) error {
	if err := command.RefuseArguments(c); err != nil {
		return err
	}
	input, err := io.ReadAll(io.LimitReader(p.In, enforce.MaxReportBytes+1))
	if err != nil {
		return fmt.Errorf("read the report: %w", err)
	}
	report, err := enforce.DecodeReport(input)
	if err != nil {
		return command.Usage("the report on stdin: %w", err)
	}
	host, err := p.openHost()
	if err != nil {
		return err
	}
	// A controller that has hung up must not leave the report half done: what
	// is written for it then fails, and that is all.
	signal.Ignore(syscall.SIGPIPE)
	say := func(line string) { fmt.Fprintln(p.Out, line) }
	outcomes, warnings := host.carryOut(c.Context, report, say)
	for _, o := range outcomes {
		if text := enforcement.Remark(o); text != "" {
			fmt.Fprintln(p.Err, render.Printable(text))
		}
	}
	for _, text := range warnings {
		fmt.Fprintln(p.Err, render.Printable(text))
	}
	return nil
}
