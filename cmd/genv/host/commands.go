// Package host has the commands that root runs on a GPU host: `genv usage` for controllers,
// `genv enforce`, `genv monitor`, `genv doctor`, `genv gpus`, the service `genv host`, and
// `genv guard`.
package host

import (
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/gpulist"
	"github.com/seed-3119e985/genv/cmd/genv/guard"
	"github.com/seed-3119e985/genv/cmd/genv/monitoring"
)

// Commands are what root runs on a GPU host.
func Commands(with command.Program) []*cli.Command {
	p := &program{with}
	return append(guard.Commands(with), []*cli.Command{
		p.doctorCommand(),
		{
			Name:   "enforce",
			Usage:  "enforce the rules on this machine, in a loop",
			Flags:  enforcement.Flags(),
			Action: p.enforceHere,
		},
		{
			Name:   "gpus",
			Usage:  "list the GPUs of this machine: which are free, and who uses the others",
			Flags:  gpulist.Flags(),
			Action: p.gpusHere,
		},
		p.serviceCommand(),
		{
			Name:   "monitor",
			Usage:  "export metrics of this machine for Prometheus, and configuration for it and Grafana",
			Flags:  monitoring.Flags(p.Getenv),
			Action: p.monitorHere,
		},
		p.usageCommand(),
	}...)
}

// usageCommand is `genv usage`.
func (p *program) usageCommand() *cli.Command {
	return &cli.Command{
		Name:  "usage",
		Usage: "commands that a controller runs on this host",
		Subcommands: []*cli.Command{
			{
				Name:   "snapshot",
				Usage:  "print the devices, environments and processes of this host, as JSON",
				Flags:  []cli.Flag{command.OneOf(&cli.StringFlag{Name: "type", Usage: "only one `PART`: devices, envs or processes"}, []string{"devices", "envs", "processes"}), command.FormatFlag("json")},
				Action: p.usageSnapshot,
			},
			{
				Name:   "execute",
				Usage:  "carry out the report on stdin, and print a line for each action",
				Action: p.usageExecute,
			},
			{
				Name:  "serve",
				Usage: "answer a controller's requests on stdin and stdout until it closes the connection",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "token", Usage: "begin the greeting with `TOKEN`, so that it is found after banners; otherwise the first line of stdin has it"},
					&cli.StringFlag{Name: "idle", Value: "10m", Usage: "end after this `TIME` without a request, in seconds or as 10m"},
				},
				Action: p.usageServe,
			},
		},
	}
}
