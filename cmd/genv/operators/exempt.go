package operators

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ExemptDocument is the JSON of `genv remote exempt`.
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

type exemptOptions struct {
	controllerOptions
	output               render.Output
	host                 []string
	user, device, reason string
	rule                 enforce.Rule
	length               time.Duration
	from                 string
	list                 bool
	revoke               string
}

// exemptCommand asks the running controller, or changes the stopped one's folder. Package operator decides.
func exemptCommand(p command.Program) *cli.Command {
	o := &exemptOptions{controllerOptions: controllerOptions{Program: p}}
	return &cli.Command{
		Name:  "exempt",
		Usage: "exempt a user, a host or a GPU from the rules for some time, list exemptions, or end one",
		Flags: slices.Concat([]cli.Flag{
			command.String(&o.user, "user", "exempt this `USER`"),
			command.Strings(&o.host, "host,H", "exempt this `HOST`, or with --user the user there"),
			command.String(&o.device, "device", "exempt the GPU with this `INDEX` of --host"),
			command.String(&o.rule, "rule", "from this `RULE` only, such as idle or caps, or from the cap of this name").
				Offers(enforce.RuleNames()...),
			command.Duration(&o.length, "for", "for this `TIME`, such as 12h or 7d; at most 30d"),
			command.String(&o.from, "from", "begin at this `TIME`, such as 2026-12-01 or 2026-12-01T18:00; otherwise now"),
			command.String(&o.reason, "reason", "why, for the record and for other operators: `TEXT`"),
			command.Bool(&o.list, "list", "list the exemptions"),
			command.String(&o.revoke, "revoke", "end the exemption with this `ID`, as the list has it"),
		}, o.controllerFlags(), command.OutputFlags(&o.output)),
		Action: o.run,
	}
}

type controllerOptions struct {
	command.Program
	socket, stateDir, auditLog string
}

func (o *controllerOptions) controllerFlags() []cli.Flag {
	return []cli.Flag{
		command.String(&o.socket, "socket",
			"ask the controller with this socket (`PATH`, or off for none); otherwise the one that runs").
			Config(command.Top | command.Shared | command.OrOff).Unless("GENV_SOCKET"),
		command.String(&o.stateDir, "state-dir", "the `DIR` of a controller that doesn't run").
			Config(command.Shared).Unless("STATE_DIRECTORY"),
		command.String(&o.auditLog, "audit-log",
			"record it in `FILE` if no controller runs; otherwise the next one records it at its start").
			Config(command.Top | command.Shared),
	}
}

// read returns nil to list or to revoke.
func (o *exemptOptions) read() (*operator.Action, error) {
	says := len(o.host) > 0 || o.user+o.device+string(o.rule)+o.from != "" || o.length != 0
	switch {
	case o.list && (says || o.revoke+o.reason != ""), o.revoke != "" && says:
		return nil, command.WrongFlag("list", ", --revoke ID and a new exemption don't go together")
	case o.list, o.revoke != "":
		return nil, nil //nolint:nilnil // nothing is exempted
	case len(o.host) > 1:
		return nil, command.WrongFlag("host", ": name one host, or none for all")
	case o.length == 0 || o.reason == "":
		return nil, command.UsageError("an exemption needs --for TIME and --reason TEXT, and --user or --host; " +
			"--list lists those that there are")
	case o.length > policy.MaxExemption:
		return nil, command.WrongFlag("for", " %s: an exemption lasts for at most %s",
			text.FormatDuration(o.length), text.FormatDuration(policy.MaxExemption))
	}
	a := operator.Action{
		Schema: operator.ActionSchema, Kind: operator.Exempt, User: snapshot.Username(o.user), Rule: o.rule,
		Hours: o.length.Hours(), Reason: o.reason,
	}
	if o.from != "" {
		var err error
		if a.From, err = o.Time(o.from); err != nil {
			return nil, err
		}
	}
	a.Host = snapshot.Hostname(strings.Join(o.host, ""))
	if o.device != "" {
		n, err := strconv.ParseUint(o.device, 10, 16)
		if err != nil {
			return nil, command.WrongFlag("device", " %q: write the index of a GPU, such as 3", o.device)
		}
		a.Device = new(snapshot.DeviceIndex(n))
	}
	if o.user != "" {
		if err := text.CheckUsername(o.user); err != nil {
			return nil, command.WrongFlag("user", ": %w", err)
		}
	}
	return &a, withNextStep(a.Check())
}

func (o *exemptOptions) run(c *cli.Context) error {
	action, err := o.read()
	if err != nil {
		return err
	}
	at, err := o.exemptions(c, o.list)
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
	if o.revoke != "" {
		if action, err = revocation(state.Exemptions, o.revoke, o.reason); err != nil {
			return err
		}
	}
	if action != nil {
		if err := o.checkNames(c.Context, at, *action); err != nil {
			return err
		}
		if document.Text, err = at.act(c.Context, action); err != nil {
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
	return o.write(&document)
}

func revocation(list policy.ExemptionList, id, reason string) (*operator.Action, error) {
	for i := range list {
		if w := &list[i].Who; w.ID() == id {
			a := operator.Action{
				Schema: operator.ActionSchema, Kind: operator.Unexempt, User: w.User, Host: w.Host, Device: w.Device,
				UUID: w.UUID, Rule: w.Rule, Reason: reason,
			}
			return &a, withNextStep(a.Check())
		}
	}
	return nil, command.WrongFlag("revoke", " %s: there is no such exemption; genv remote exempt --list lists them",
		text.Shown(id))
}

func withNextStep(err error) error {
	if _, refused := errors.AsType[*operator.Refusal](err); refused {
		return command.UsageError("%w", operator.WithNextStep(err))
	}
	return err
}

func (o *exemptOptions) write(d *ExemptDocument) error {
	if o.output.Format == "json" {
		d.Exemptions = append([]exemptionWithID{}, d.Exemptions...) // an empty list, not null
		return render.WriteJSON(o.Out, d)
	}
	if d.Text != "" {
		_, err := fmt.Fprintln(o.Out, text.OneLine(d.Text))
		return err
	}
	if d.Hold != nil && o.output.Format == "tui" {
		fmt.Fprintf(o.Err, "%s; genv remote release ends it\n", d.Hold)
	}
	if len(d.Exemptions) == 0 && o.output.Format == "tui" {
		fmt.Fprintln(o.Err, "No exemptions made by an operator; the policy file may have others.")
	}
	t := o.output.Table("ID:10", "USER:10", "HOST:12", "GPU:8", "RULE:14", "UNTIL:21", "BY:20", "REASON")
	for i := range d.Exemptions {
		e := &d.Exemptions[i]
		device := ""
		if e.Device != nil {
			device = e.Device.String()
		}
		until := strings.TrimPrefix(e.Times(), "until ")
		t.Add(e.ID, string(e.User), string(e.Host), device, string(e.Rule), until, e.By, e.Reason)
	}
	return t.Write(o.Out)
}

type knownNames struct {
	hosts, users []string                // known to the controller; users have or use GPUs; no hosts if unknown
	account      func(name string) error // of this machine
	accounts     func() []string         // for suggestions
}

func (o *controllerOptions) checkNames(ctx context.Context, at exemptions, actions ...operator.Action) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // a directory service may be slow, or down
	defer cancel()
	known := knownNames{
		account: func(name string) error {
			_, err := nss.Passwd{}.Named(ctx, name)
			return err //nolint:wrapcheck // it names the account
		},
		accounts: func() (names []string) {
			for _, a := range (nss.Passwd{}).All(ctx) {
				names = append(names, a.Name)
			}
			return names
		},
	}
	known.hosts, known.users = at.names(ctx)
	for _, a := range actions {
		if a.Kind != operator.Exempt {
			continue
		}
		warning, err := known.check(string(a.Host), string(a.User))
		if err != nil {
			return err
		}
		if warning != "" {
			o.Warn(warning)
		}
	}
	return nil
}

// check returns an error for a host or user that certainly doesn't exist, and a warning about a user if that is
// unknown.
func (k *knownNames) check(host, user string) (warning string, err error) {
	if host != "" && len(k.hosts) > 0 && !slices.Contains(k.hosts, host) {
		return "", command.UsageError("there is no host %s; %s", text.Shown(host),
			text.Hint(host, k.hosts, "genv remote hosts lists them"))
	}
	if user == "" || isUID(user) || slices.Contains(k.users, user) {
		return "", nil
	}
	err = k.account(user)
	switch {
	case err == nil:
		return "", nil
	case !errors.Is(err, nss.ErrNoAccount):
		return fmt.Sprintf("warning: whether there is a user %s is unknown: %v", text.Shown(user), err), nil
	case len(k.users) == 0 || slices.ContainsFunc(k.users, func(name string) bool {
		return !isUID(name) && k.account(name) != nil
	}):
		return fmt.Sprintf("warning: user %s has no account on this machine, as users of hosts may, and no GPU now: "+
			"check the spelling", text.Shown(user)), nil
	}
	hint := text.Hint(user, slices.Concat(k.users, k.accounts()), "check the spelling.")
	return "", command.UsageError("no user %s has an account on this machine or a GPU now; %s If the account is only "+
		"on the hosts, name it under `exempt:` in the policy", text.Shown(user), hint)
}

func isUID(name string) bool {
	n, found := strings.CutPrefix(name, "uid ")
	_, err := strconv.ParseUint(n, 10, 32)
	return found && err == nil
}
