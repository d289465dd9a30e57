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

// holdCommand is `genv remote hold`. Hosts are held by an exemption for as long as one may last.
func (p *program) holdCommand() *cli.Command {
	return p.holdOrRelease("hold", "have rules do nothing until genv remote release: on all hosts, or on some for at "+
		"most 30 days", func(reason string, host snapshot.Hostname) operator.Instruction {
		if host == "" {
			return operator.Instruction{Kind: operator.Hold, Reason: reason}
		}
		return operator.Instruction{Kind: operator.Exempt, Host: host, Hours: policy.MaxExemption.Hours(), Reason: reason}
	})
}

func (p *program) releaseCommand() *cli.Command {
	return p.holdOrRelease("release", "end what genv remote hold began",
		func(reason string, host snapshot.Hostname) operator.Instruction {
			if host == "" {
				return operator.Instruction{Kind: operator.Release, Reason: reason}
			}
			return operator.Instruction{Kind: operator.Unexempt, Host: host, Reason: reason}
		})
}

// holdOrRelease is a command that has an action done for each host that is named, or once for all.
func (p *program) holdOrRelease(
	name, usage string, action func(reason string, host snapshot.Hostname) operator.Instruction,
) *cli.Command {
	var o struct {
		controllerOptions
		host   []string
		reason string
	}
	return &cli.Command{
		Name: name, Usage: usage,
		Flags: append([]cli.Flag{
			command.Strings(&o.host, "host,H", "only on these `HOSTS`: a,b or gpu[01-16].lab or @group"),
			command.String(&o.reason, "reason", "why, for the record and for other operators: `TEXT`"),
		}, o.controllerFlags()...),
		Action: func(c *cli.Context) error {
			if name == "hold" && o.reason == "" {
				return command.UsageError("hold needs a reason: give --reason TEXT")
			}
			hosts, err := p.hostsToHold(o.host)
			if err != nil {
				return err
			}
			actions := make([]operator.Instruction, len(hosts))
			for i, host := range hosts {
				actions[i] = action(o.reason, host)
				actions[i].Schema = operator.ActionSchema
				if err := actions[i].Check(); err != nil {
					return withNextStep(err)
				}
			}
			return p.operate(c, &o.controllerOptions, actions)
		},
	}
}

// hostsToHold are the hosts that are named; one without a name for all.
func (p *program) hostsToHold(named []string) ([]snapshot.Hostname, error) {
	if len(named) == 0 {
		return []snapshot.Hostname{""}, nil
	}
	list, err := inventory.Load(inventory.Selection{
		Hosts: named, DefaultFiles: command.ConfigPaths(p.Getenv, command.HostsFile), OpenDefault: command.OpenConfig,
	}, command.OpenAtOnce)
	hosts := make([]snapshot.Hostname, len(list))
	for i := range list {
		hosts[i] = snapshot.Hostname(list[i].Name)
	}
	return hosts, err
}

// said is what was done; a host is held by an exemption, which the controller calls so.
func (p *program) said(a *operator.Instruction, done string) string {
	switch {
	case a.Host == "":
		return done
	case a.Kind == operator.Exempt:
		until := p.Now().Add(policy.MaxExemption).Local().Format(time.DateTime)
		return fmt.Sprintf("held host %s until %s: %s", a.Host, until, a.Reason)
	default:
		return fmt.Sprintf("ended the hold of host %s", a.Host)
	}
}

// operate has actions done. Those that change nothing are warnings, as long as one changes something.
func (p *program) operate(c *cli.Context, o *controllerOptions, actions []operator.Instruction) error {
	at, err := p.exemptions(c, o, false)
	if err != nil {
		return err
	}
	defer at.close()
	if err := p.checkNames(c.Context, at, actions...); err != nil {
		return err
	}
	var nothing []error
	for i := range actions {
		done, err := at.act(c.Context, &actions[i])
		var refusal *operator.Refusal
		switch {
		case errors.As(err, &refusal) && refusal.Code == operator.Changed:
			if actions[i].Host != "" {
				err = fmt.Errorf("there is no hold of host %s", actions[i].Host)
			}
			nothing = append(nothing, err)
		case err != nil:
			return withNextStep(err)
		default:
			fmt.Fprintln(p.Out, text.OneLine(p.said(&actions[i], done)))
		}
	}
	if len(nothing) == len(actions) {
		return command.UsageError("%w", errors.Join(nothing...))
	}
	for _, err := range nothing {
		p.Warn(err.Error())
	}
	return nil
}
