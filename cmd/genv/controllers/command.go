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
		Flags: slices.Concat(flags, leaderFlags(), command.OutputFlags()),
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

// noLeader is the value of --leader with which only hosts are asked.
const noLeader = "off"

// leaderFlags are those about a leader: here --leader has nothing act.
func leaderFlags() []cli.Flag {
	flags := leadership.Flags()
	flags[0] = &cli.StringFlag{Name: "leader", Usage: "the `URL` of the election to show, such as etcd://a:2379,b:2379,c:2379/genv/lab or, with TLS, etcds://…; off to ask only hosts"}
	return flags
}

func readLeader(c *cli.Context, getenv func(string) string) (leadership.Config, error) {
	if c.String("leader") == noLeader {
		return leadership.Config{}, nil
	}
	return leadership.ReadConfig(c, getenv, true)
}

// examine asks hosts and etcd.
func examine(c *cli.Context, p *command.Program, ask Ask) (*Document, error) {
	config, err := readLeader(c, p.Getenv)
	if err != nil {
		return nil, err
	}
	d := &Document{Schema: Schema, Hosts: []Host{}, Failed: []remote.Failure{}}
	asksHosts := config.Key == "" || command.IsGiven(c, "host") || command.IsGiven(c, "hostfile")
	if asksHosts {
		hosts, failed, err := ask(c)
		if err != nil {
			return nil, err
		}
		d.Hosts, d.Failed = append(d.Hosts, hosts...), append(d.Failed, failed...)
	}
	if config.Key != "" { // after the hosts: an epoch that they know can't be later
		if err := d.askEtcd(c.Context, &config); err != nil && !asksHosts {
			err = fmt.Errorf("etcd doesn't say which controller leads: %w", err)
			if !etcd.Refused(err) {
				err = fmt.Errorf("%w; look at `%s`, or ask hosts with -H", err, config.Health())
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
