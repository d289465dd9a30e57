package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type explainOptions struct {
	command.Program
	rules     policycheck.RuleFlags
	inventory []string
	output    render.Output
	query     enforce.Query
	at        string
	stateDir  string
	socket    string              // of a running controller
	groups    map[string][]string // of the inventory
}

func policyExplainCommand(p command.Program) *cli.Command {
	o := &explainOptions{Program: p}
	return &cli.Command{
		Name: "explain", Usage: "print the settings for a user on a host, and where each comes from",
		Flags: append(append([]cli.Flag{inventoryFlag(&o.inventory)}, o.rules.Flags()...),
			command.FormatFlag(&o.output.Format, "tui", "csv", "json"),
			command.String(&o.query.User, "user",
				"the settings for this `USER`; without it, those for users that the policy doesn't name"),
			command.String(&o.query.Host, "host", "on this `HOST`, by its name in the inventory"),
			command.String(&o.at, "at", "at this `TIME`, such as 2026-11-20T22:00; now by default"),
			stateDirFlag(&o.stateDir),
			command.String(&o.socket, "socket", "ask the controller with this socket (`PATH`, or off) what counts now").
				Config(command.Top|command.Shared|command.OrOff).Unless(socket.Variable).Hide(),
		),
		Action: o.run,
	}
}

func (o *explainOptions) run(c *cli.Context) (err error) {
	if !command.GivesAny(c, "format") {
		if told := localhost.Told(c.Context, o.Program); told != nil {
			return o.writeTold(told)
		}
	}
	o.query.Labels = map[string]string{}
	if o.query.At, err = o.Time(o.at); err != nil {
		return err
	}
	if err := o.addLabels(); err != nil {
		return err
	}
	file, err := o.rules.Read(c)
	if err != nil {
		return err
	}
	if err := file.UseHostGroups(func() (map[string][]string, error) { return o.groups, nil }); err != nil {
		return command.UsageError("%w", err)
	}
	unix := nss.NewGroups(time.Now)
	unix.Wait = 5 * time.Second
	file.AskUnix(unix.Member)
	var exempt []enforce.ExemptGPU // exempt by index, as controllers on this machine know
	memories, _ := remembered(enforcement.ControllerDirs(o.Getenv, o.stateDir))
	for _, rules := range memories {
		exempt = append(exempt, rules.ExemptGPUs[o.query.Host]...)
	}
	return o.writeExplanation(append(file.Explain(o.query, exempt...), o.countedNow(c)...))
}

func (o *explainOptions) addLabels() error {
	q := &o.query
	hosts, groups, err := readInventory(o.Getenv, o.inventory)
	if err != nil {
		return err
	}
	o.groups = groups
	if q.Host == "" {
		return nil
	}
	names := make([]string, len(hosts))
	for i := range hosts {
		names[i] = hosts[i].Name
		if text.FoldHost(hosts[i].Name) == text.FoldHost(string(q.Host)) {
			maps.Copy(q.Labels, hosts[i].Labels)
			return nil
		}
	}
	if len(hosts) > 0 {
		o.Warnf("warning: host %q is not in the inventory, so it has no labels; %s",
			q.Host, text.Hint(string(q.Host), names, "correct the name, or add it there"))
	}
	return nil
}

func (o *explainOptions) writeExplanation(list []policy.Explanation) error {
	q := &o.query
	if o.output.Format == "json" {
		return render.WriteJSON(o.Out, ExplainDocument{
			Schema: "genv.policy.explain/1", User: q.User, Host: q.Host, Labels: q.Labels,
			At: q.At.Format(time.RFC3339), Settings: list,
		})
	}
	t := o.output.Table("SETTING:24", "VALUE:16", "FROM")
	for _, e := range list {
		t.Add(e.Key, e.Value, e.From)
	}
	return t.Write(o.Out)
}

// ExplainDocument is the JSON of `genv policy explain`.
type ExplainDocument struct {
	Schema   string               `json:"schema"`
	User     snapshot.Username    `json:"user"`
	Host     snapshot.Hostname    `json:"host"`
	Labels   map[string]string    `json:"labels"` // of the host
	At       string               `json:"at"`
	Settings []policy.Explanation `json:"settings"`
}

func (o *explainOptions) writeTold(told *service.Allowance) error {
	since := told.Since.Local().Format(time.DateTime)
	if told.Expired { // the controller no longer updates it
		return fmt.Errorf("%s enforces a policy on this host, and has not said since %s what applies here, so genv "+
			"doesn't know it: ask %s, or use --policy FILE", cmp.Or(told.By, "a controller"), since,
			cmp.Or(told.Contact, "your administrator"))
	}
	from := fmt.Sprintf("%s, since %s", told.By, since)
	rules, person := told.Rules, service.Person{}
	for _, person = range told.People {
		if person.Rules != nil {
			rules = person.Rules
		}
	}
	if told.Unknown() {
		o.Warn(service.CapsUnknown)
	}
	var list []policy.Explanation
	for _, r := range rules {
		list = append(list, policy.Explanation{Key: r.Key, Value: r.Value, From: from})
	}
	for _, c := range told.CapTexts(person) {
		list = append(list, policy.Explanation{Key: "cap " + c.Key, Value: c.Value, From: from})
	}
	if told.Contact != "" {
		list = append(list, policy.Explanation{Key: "contact", Value: told.Contact, From: from})
	}
	o.query.Host, o.query.Labels = snapshot.Hostname(enforcelocal.Hostname()), map[string]string{}
	return o.writeExplanation(list)
}

func (o *explainOptions) countedNow(c *cli.Context) (list []policy.Explanation) {
	path := runningController(c.Context, o.Getenv, o.socket)
	if o.query.User == "" || o.query.Host == "" || c.IsSet("at") || path == "" {
		return nil
	}
	answer, err := live.SendAction(c.Context, path, operator.Action{
		Schema: operator.ActionSchema, Kind: operator.Explain, Host: o.query.Host, User: o.query.User,
	})
	if err != nil {
		o.Warnf("what counts now is unknown: %v", err)
		return nil
	}
	for line := range strings.SplitSeq(answer.Text, "\n") {
		if key, value, _ := strings.Cut(line, ": "); line != "" {
			list = append(list, policy.Explanation{Key: "now " + key, Value: value, From: "the controller that runs"})
		}
	}
	return list
}
