// Package operators has the commands by which operators restrain a controller: `genv remote exempt`, `hold` and
// `release`. The controller runs, or has left its state in a folder.
package operators

import (
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Commands returns the commands of `genv remote`.
func Commands(with command.Program) []*cli.Command {
	return []*cli.Command{
		exemptCommand(with),
		// The hold of a host is an exemption of the maximum length.
		holdOrRelease(with, "hold", "have rules do nothing until genv remote release: on all hosts, or on some for at "+
			"most 30 days", operator.Action{Kind: operator.Hold},
			operator.Action{Kind: operator.Exempt, Hours: policy.MaxExemption.Hours()}),
		holdOrRelease(with, "release", "end what genv remote hold began", operator.Action{Kind: operator.Release},
			operator.Action{Kind: operator.Unexempt}),
	}
}

func holdOrRelease(p command.Program, name, usage string, forAll, forOne operator.Action) *cli.Command {
	var host []string
	var reason string
	o := &controllerOptions{Program: p}
	return &cli.Command{
		Name: name, Usage: usage,
		Flags: append([]cli.Flag{
			command.Strings(&host, "host,H", "only on these `HOSTS`: a,b or gpu[01-16].lab or @group"),
			command.String(&reason, "reason", "why, for the record and for other operators: `TEXT`"),
		}, o.controllerFlags()...),
		Action: func(c *cli.Context) error {
			if name == "hold" && reason == "" {
				return command.UsageError("hold needs a reason: give --reason TEXT")
			}
			hosts, err := o.hostsToHold(host)
			if err != nil {
				return err
			}
			actions := make([]operator.Action, len(hosts))
			for i, host := range hosts {
				if actions[i] = forOne; host == "" {
					actions[i] = forAll
				}
				actions[i].Schema, actions[i].Host, actions[i].Reason = operator.ActionSchema, host, reason
				if err := actions[i].Check(); err != nil {
					return withNextStep(err)
				}
			}
			return o.operate(c, actions)
		},
	}
}

// hostsToHold is one without a name for all.
func (o *controllerOptions) hostsToHold(named []string) ([]snapshot.Hostname, error) {
	if len(named) == 0 {
		return []snapshot.Hostname{""}, nil
	}
	list, err := inventory.Load(inventory.Selection{
		Hosts: named, DefaultFiles: command.ConfigPaths(o.Getenv, command.HostsFile), OpenDefault: command.OpenConfig,
	}, command.OpenAtOnce)
	hosts := make([]snapshot.Hostname, len(list))
	for i := range list {
		hosts[i] = snapshot.Hostname(list[i].Name)
	}
	return hosts, err
}

// describe says what was done. The controller calls the hold of a host an exemption.
func (o *controllerOptions) describe(a *operator.Action, done string) string {
	switch {
	case a.Host == "":
		return done
	case a.Kind == operator.Exempt:
		until := o.Now().Add(policy.MaxExemption).Local().Format(time.DateTime)
		return fmt.Sprintf("held host %s until %s: %s", a.Host, until, a.Reason)
	}
	return fmt.Sprintf("ended the hold of host %s", a.Host)
}

// operate sends actions. Those without effect are warnings if any has an effect.
func (o *controllerOptions) operate(c *cli.Context, actions []operator.Action) error {
	at, err := o.exemptions(c, false)
	if err != nil {
		return err
	}
	defer at.close()
	if err := o.checkNames(c.Context, at, actions...); err != nil {
		return err
	}
	var nothing []error
	for i := range actions {
		done, err := at.act(c.Context, &actions[i])
		refusal, refused := errors.AsType[*operator.Refusal](err)
		switch {
		case refused && refusal.Code == operator.Changed:
			if actions[i].Host != "" {
				err = fmt.Errorf("there is no hold of host %s", actions[i].Host)
			}
			nothing = append(nothing, err)
		case err != nil:
			return withNextStep(err)
		default:
			fmt.Fprintln(o.Out, text.OneLine(o.describe(&actions[i], done)))
		}
	}
	if len(nothing) == len(actions) {
		return command.UsageError("%w", errors.Join(nothing...))
	}
	for _, err := range nothing {
		o.Warn(err.Error())
	}
	return nil
}
