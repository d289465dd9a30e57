package controllers

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/leadership"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Ask asks the hosts that the flags of a command name.
type Ask func(c *cli.Context) ([]Host, []remote.Failure, error)

// Command is `genv remote controllers`. flags are those about hosts, which ask reads.
func Command(p command.Program, flags []cli.Flag, ask Ask) *cli.Command {
	return &cli.Command{
		Name:  "controllers",
		Usage: "show which controller leads, which are standbys or lost, and which one acts on each host; it changes nothing",
		Flags: slices.Concat(flags, leadership.Flags(), command.OutputFlags()),
		Action: func(c *cli.Context) error {
			output, err := command.ReadOutput(c)
			if err != nil {
				return err
			}
			d, err := examine(c, &p, ask)
			if err != nil {
				return err
			}
			return d.print(&p, output)
		},
	}
}

// examine asks etcd and hosts.
func examine(c *cli.Context, p *command.Program, ask Ask) (*Document, error) {
	config, err := leadership.ReadConfig(c, p.Getenv, true)
	if err != nil {
		return nil, err
	}
	d := &Document{Schema: Schema, Hosts: []Host{}, Failed: []remote.Failure{}}
	if config.Key == "" || command.IsGiven(c, "host") || command.IsGiven(c, "hostfile") {
		hosts, failed, err := ask(c)
		if err != nil {
			return nil, err
		}
		d.Hosts, d.Failed = append(d.Hosts, hosts...), append(d.Failed, failed...)
	}
	if config.Key != "" { // after the hosts: an epoch that they know can't be later
		if err := d.askEtcd(c.Context, &config); err != nil {
			err = fmt.Errorf("etcd doesn't say which controller leads: %w", err)
			if !etcd.Refused(err) {
				err = fmt.Errorf("%w; look at `%s`", err, config.Health())
			}
			return nil, &command.ExitError{Code: command.ExitSomeFailed, Err: err}
		}
	}
	d.Time = p.Now().Round(0).UTC()
	d.judge()
	return d, nil
}

// print prints the document, and returns the exit code.
func (d *Document) print(p *command.Program, output render.Output) error {
	var err error
	if output.Format == "json" {
		err = render.WriteJSON(p.Out, d)
	} else {
		err = d.write(p.Out, output)
	}
	if err != nil {
		return err
	}
	if len(d.Problems) > 0 || len(d.Failed) > 0 {
		return &command.ExitError{Code: command.ExitSomeFailed}
	}
	return nil
}
