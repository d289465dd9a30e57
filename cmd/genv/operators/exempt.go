package operators

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ExemptDocument is the JSON of `genv remote exempt`; docs/json.md describes it.
type ExemptDocument struct {
	Schema     string            `json:"schema"`
	Controller string            `json:"controller,omitempty"` // the socket of the one that was asked
	StateDir   string            `json:"state_dir,omitempty"`  // the folder of one that doesn't run
	Text       string            `json:"text,omitempty"`       // what was done
	Exemptions []exemptionWithID `json:"exemptions"`
	Hold       *operator.OnHold  `json:"hold,omitempty"` // why an operator had rules do nothing; missing if they act
}

type exemptionWithID struct {
	ID string `json:"id"`
	policy.Exemption
}

// exemptCommand is `genv remote exempt`. It asks the running controller over its socket; if none
// runs, it changes the exemptions in the folder of the stopped one. It connects to no host, and
// package operator decides which exemptions are allowed.
func (p *program) exemptCommand() *cli.Command {
	return &cli.Command{
		Name:  "exempt",
		Usage: "exempt a user, a host or a GPU from the rules for some time, list exemptions, or end one",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "user", Usage: "exempt this `USER`"},
			&cli.StringSliceFlag{Name: "host", Aliases: []string{"H"}, Usage: "exempt this `HOST`, or with --user the user there"},
			&cli.StringFlag{Name: "device", Usage: "exempt the GPU with this `INDEX` of --host"},
			command.OneOf(&cli.StringFlag{Name: "rule", Usage: "from this `RULE` only, such as idle or max-duration"}, enforce.RuleNames()),
			command.Lasting(&cli.StringFlag{Name: "for", Usage: "for this `TIME`, such as 12h or 7d; at most 30d"}),
			&cli.StringFlag{Name: "reason", Usage: "why, for the record and for other operators: `TEXT`"},
			&cli.BoolFlag{Name: "list", Usage: "list the exemptions"},
			&cli.StringFlag{Name: "revoke", Usage: "end the exemption with this `ID`, as the list has it"},
		}, controllerFlags(), command.OutputFlags()),
		Action: p.remoteExempt,
	}
}

// controllerFlags are those that find the controller of an operator's action.
func controllerFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "socket", Category: command.Site + command.Top + command.OrOff + command.Unless("GENV_SOCKET"), Usage: "ask the controller with this socket (`PATH`, or off for none); otherwise the one that runs"},
		&cli.StringFlag{Name: "state-dir", Category: command.Site + command.Shared + command.Unless("STATE_DIRECTORY"), Usage: "the `DIR` of a controller that doesn't run"},
		&cli.StringFlag{Name: "audit-log", Category: command.Site + command.Top + command.Shared, Usage: "record it in `FILE` if no controller runs; otherwise the next one records it at its start"},
	}
}

// exemptRequest is what the flags say: an action, or an id to revoke, or neither to list.
type exemptRequest struct {
	output render.Output
	action *operator.Action
	revoke string
}

func (p *program) readExempt(c *cli.Context) (r exemptRequest, err error) {
	r.output = command.ReadOutput(c)
	hosts := command.AllGiven(c, "host")
	says := len(hosts) > 0 || c.String("user") != "" || c.String("for") != "" || c.String("device") != "" || c.String("rule") != ""
	r.revoke = c.String("revoke")
	switch {
	case c.Bool("list") && (says || r.revoke != "" || c.String("reason") != ""), r.revoke != "" && says:
		return r, command.UsageError("--list, --revoke ID and a new exemption don't go together")
	case c.Bool("list"), r.revoke != "":
		return r, nil
	case len(hosts) > 1:
		return r, command.UsageError("--host: name one host, or none for all")
	case c.String("for") == "" || c.String("reason") == "":
		return r, command.UsageError("an exemption needs --for TIME and --reason TEXT, and --user or --host; --list lists those that there are")
	}
	length := command.Duration(c, "for")
	if length > policy.MaxExemption {
		return r, command.UsageError("--for %s: an exemption lasts for at most %s", c.String("for"), text.FormatDuration(policy.MaxExemption))
	}
	a := operator.Action{
		Schema: operator.ActionSchema, Kind: operator.Exempt, User: snapshot.Username(c.String("user")), Rule: enforce.Rule(c.String("rule")),
		Hours: length.Hours(), Reason: c.String("reason"),
	}
	if len(hosts) == 1 {
		a.Host = snapshot.Hostname(hosts[0])
	}
	if device := c.String("device"); device != "" {
		n, err := strconv.ParseUint(device, 10, 16)
		if err != nil {
			return r, command.UsageError("--device %q: write the index of a GPU, such as 3", device)
		}
		a.Device = new(snapshot.DeviceIndex(n))
	}
	if a.User != "" {
		if err := text.CheckUsername(string(a.User)); err != nil {
			return r, command.UsageError("--user: %w", err)
		}
	}
	r.action = &a
	return r, withNextStep(a.Check())
}

func (p *program) remoteExempt(c *cli.Context) error {
	r, err := p.readExempt(c)
	if err != nil {
		return err
	}
	at, err := p.exemptions(c)
	if err != nil {
		return err
	}
	defer at.close()
	state, err := at.state(c.Context)
	if err != nil {
		return withNextStep(err)
	}
	document := ExemptDocument{Schema: "genv.remote.exempt/1"}
	document.Controller, document.StateDir = at.where()
	if r.revoke != "" {
		if r.action, err = revocation(state.Exemptions, r.revoke, c.String("reason")); err != nil {
			return err
		}
	}
	if r.action != nil {
		if err := p.checkNames(c.Context, at, *r.action); err != nil {
			return err
		}
		if document.Text, err = at.act(c.Context, r.action); err != nil {
			return withNextStep(err)
		}
		if state, err = at.state(c.Context); err != nil {
			return fmt.Errorf("%s; the list: %w", document.Text, err)
		}
	}
	for _, e := range state.Exemptions {
		document.Exemptions = append(document.Exemptions, exemptionWithID{e.ID(), e})
	}
	document.Hold = state.Hold
	return p.writeExemptions(r, &document)
}

// revocation is the action that ends an exemption.
func revocation(list policy.ExemptionList, id, reason string) (*operator.Action, error) {
	for i := range list {
		if w := &list[i].Who; w.ID() == id {
			a := operator.Action{
				Schema: operator.ActionSchema, Kind: operator.Unexempt, User: w.User, Host: w.Host, Device: w.Device, UUID: w.UUID, Rule: w.Rule, Reason: reason,
			}
			return &a, withNextStep(a.Check())
		}
	}
	return nil, command.UsageError("--revoke %s: there is no such exemption; genv remote exempt --list lists them", text.Shown(id))
}

// withNextStep adds what a refusal says about it.
func withNextStep(err error) error {
	var refusal *operator.Refusal
	if errors.As(err, &refusal) && refusal.NextStep != "" {
		return command.UsageError("%w. %s", err, refusal.NextStep)
	}
	return err
}

func (p *program) writeExemptions(r exemptRequest, d *ExemptDocument) error {
	if r.output.Format == "json" {
		d.Exemptions = append([]exemptionWithID{}, d.Exemptions...) // an empty list, not null
		return render.WriteJSON(p.Out, d)
	}
	if d.Text != "" {
		_, err := fmt.Fprintln(p.Out, text.OneLine(d.Text))
		return err
	}
	if d.Hold != nil && r.output.Format == "tui" {
		fmt.Fprintf(p.Err, "%s; genv remote release ends it\n", d.Hold)
	}
	if len(d.Exemptions) == 0 && r.output.Format == "tui" {
		fmt.Fprintln(p.Err, "No exemptions made by an operator; the policy file may have others.")
	}
	t := r.output.Table(render.Col("ID", 10), render.Col("USER", 10), render.Col("HOST", 12), render.Col("DEVICE", 8), render.Col("RULE", 14),
		render.Col("UNTIL", 21), render.Col("BY", 20), render.Col("REASON", 0))
	for i := range d.Exemptions {
		e := &d.Exemptions[i]
		device := ""
		if e.Device != nil {
			device = e.Device.String()
		}
		t.Add(e.ID, string(e.User), string(e.Host), device, string(e.Rule), e.Until.Local().Format(time.DateTime), e.By, e.Reason)
	}
	return t.Write(p.Out)
}
