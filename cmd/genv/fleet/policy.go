package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *program) policyCommand() *cli.Command {
	return &cli.Command{
		Name:        "policy",
		Category:    command.Configured,
		Usage:       "check and explain policy files, and try out their notices",
		Subcommands: []*cli.Command{p.policyCheckCommand(), p.policyTestNotifyCommand(), p.policyExplainCommand()},
	}
}

// inventoryFlag names the inventory for commands that connect to no host.
func inventoryFlag(to *[]string) cli.Flag {
	return command.Strings(to, "inventory,H",
		"the `HOSTS` of the fleet: hosts.yaml, or written as with -H elsewhere; several times").
		DefaultText("hosts.yaml in ~/.config/genv or /etc/genv")
}

// explainOptions is what the flags of `genv policy explain` say.
type explainOptions struct {
	*program
	rules     policycheck.RuleFlags
	inventory []string
	output    render.Output
	query     enforce.Query
	at        string
	groups    map[string][]string // of the inventory
}

func (p *program) policyExplainCommand() *cli.Command {
	o := &explainOptions{program: p}
	return &cli.Command{
		Name: "explain", Usage: "print the settings for a user on a host, and where each comes from",
		Flags: append(append([]cli.Flag{inventoryFlag(&o.inventory)}, o.rules.Flags()...),
			command.FormatFlag(&o.output.Format, "tui", "csv", "json"),
			command.String(&o.query.User, "user",
				"the settings for this `USER`; without it, those for users that the policy doesn't name"),
			command.String(&o.query.Host, "host", "on this `HOST`, by its name in the inventory"),
			command.String(&o.at, "at", "at this `TIME`, such as 2026-11-20T22:00; now by default"),
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
	return o.writeExplanation(o.output, o.query, append(file.Explain(o.query, o.exemptGPUs()...), o.countedNow(c)...))
}

// exemptGPUs are the GPUs of the host that a controller on this machine knows to be exempt by an index.
func (o *explainOptions) exemptGPUs() (known []enforce.ExemptGPU) {
	for _, rules := range o.remembered() {
		known = append(known, rules.ExemptGPUs[o.query.Host]...)
	}
	return known
}

// remembered is what the controllers of this machine remember.
func (p *program) remembered() (list []enforce.Memory) {
	for _, dir := range enforcement.ControllerDirs(p.Getenv) {
		store, err := statedir.OpenToRead(dir)
		if err != nil {
			continue
		}
		if memory, err := store.Load(context.Background()); err == nil {
			list = append(list, memory.Rules)
		}
		_ = store.Close() // it was only read
	}
	return list
}

// addLabels adds the labels that the inventory has for the host.
func (o *explainOptions) addLabels() error {
	q := &o.query
	hosts, groups, err := o.readInventory(o.inventory)
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
		o.Warn(fmt.Sprintf("warning: host %q is not in the inventory, so it has no labels; %s",
			q.Host, text.Hint(string(q.Host), names, "correct the name, or add it there")))
	}
	return nil
}

func (p *program) writeExplanation(output render.Output, q enforce.Query, list []policy.Explanation) error {
	if output.Format == "json" {
		return render.WriteJSON(p.Out, ExplainDocument{
			Schema: "genv.policy.explain/1", User: q.User, Host: q.Host, Labels: q.Labels,
			At: q.At.Format(time.RFC3339), Settings: list,
		})
	}
	t := output.Table(render.Col("SETTING", 24), render.Col("VALUE", 16), render.Col("FROM", 0))
	for _, e := range list {
		t.Add(e.Key, e.Value, e.From)
	}
	return t.Write(p.Out)
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

// CheckDocument is the JSON of `genv policy check`; docs/json.md describes it.
type CheckDocument struct {
	Schema string `json:"schema"`
	File   string `json:"file"`
	// no error, and with --strict no warning but for users without an account
	OK        bool                  `json:"ok"`
	Errors    []checkError          `json:"errors"`
	Warnings  []policycheck.Warning `json:"warnings"`  // not errors
	Unchecked []string              `json:"unchecked"` // what could not be checked, and why
}

type checkError struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// checkOptions is what the flags of `genv policy check` say.
type checkOptions struct {
	*program
	inventory []string
	strict    bool
	format    string
}

func (p *program) policyCheckCommand() *cli.Command {
	o := &checkOptions{program: p}
	return &cli.Command{
		Name: "check", ArgsUsage: "[FILE]",
		Usage: "list the errors of a policy file, and the users, hosts and labels in it that don't exist",
		Flags: []cli.Flag{
			inventoryFlag(&o.inventory),
			command.Bool(&o.strict, "strict",
				"exit with 1 for warnings, too, but for users without an account on this machine"),
			command.FormatFlag(&o.format, "tui", "json"),
		},
		Action: o.run,
	}
}

// readInventory returns the hosts that there are, and those of each group; none without an inventory.
func (p *program) readInventory(named []string) (hosts []remote.Host, groups map[string][]string, err error) {
	selection := inventory.Selection{
		Hosts: named, All: true,
		DefaultFiles: command.ConfigPaths(p.Getenv, command.HostsFile), OpenDefault: command.OpenConfig,
	}
	if hosts, groups, err = inventory.Known(selection, command.OpenAtOnce); err != nil || len(selection.Hosts) == 0 {
		return hosts, groups, err
	}
	more, err := inventory.Load(selection, command.OpenAtOnce) // they may be in no file
	return append(hosts, more...), groups, err
}

func (o *checkOptions) run(c *cli.Context) error {
	path := c.Args().First()
	if path == "" {
		found, err := command.FindConfig(o.Getenv, command.PolicyFile)
		if err != nil {
			return err
		}
		path = found
	}
	if path == "" || c.Args().Len() > 1 {
		return command.UsageError("missing file: write `genv policy check FILE`")
	}
	data, err := policycheck.ReadPolicyFile(path)
	if err != nil {
		return err
	}
	document := CheckDocument{
		Schema: "genv.policy.check/1", File: path, Errors: []checkError{}, Warnings: []policycheck.Warning{},
		Unchecked: []string{},
	}
	wrong := policy.Check(path, data)
	if wrong == nil {
		err := o.checkNames(c, &document, data)
		if unknownGroup := (*strictyaml.ParseError)(nil); errors.As(err, &unknownGroup) {
			wrong = err
		} else if err != nil {
			return err
		}
	}
	document.Errors = append(document.Errors, checkErrors(wrong)...)
	document.OK = wrong == nil && (refusable(&document) == 0 || !o.strict)
	if o.format == "json" {
		if err := render.WriteJSON(o.Out, document); err != nil || document.OK {
			return err
		}
		return &command.ExitError{Code: command.ExitFailed}
	}
	return o.writeCheck(&document, wrong)
}

// checkNames looks for keys that do nothing any more, and for the names in a policy.
func (o *checkOptions) checkNames(c *cli.Context, document *CheckDocument, data []byte) error {
	file, err := policy.Parse(document.File, data)
	if err != nil {
		return err
	}
	for _, key := range file.Ignored {
		document.Warnings = append(document.Warnings, policycheck.Warning{
			Line: key.Place.Line, Column: key.Place.Column, Kind: "key", Name: key.Key, Message: key.Message,
		})
	}
	references, err := policy.References(document.File, data)
	if err != nil {
		return err
	}
	var known policycheck.Known
	if known.Hosts, known.Groups, err = o.readInventory(o.inventory); err != nil {
		return err
	}
	if own, err := os.Hostname(); err == nil && len(known.Hosts) > 0 { // of `genv enforce` here
		known.Hosts = append(known.Hosts, remote.Host{Name: own})
	}
	if known.Groups != nil {
		if err := file.UseHostGroups(func() (map[string][]string, error) { return known.Groups, nil }); err != nil {
			return err
		}
	}
	known.Models = make(map[snapshot.Hostname]map[string]int)
	for _, rules := range o.remembered() {
		for name, host := range rules.Hosts {
			known.Models[name] = host.GPUs
		}
	}
	o.checkCaps(document, file, &known)
	o.checkMail(document, file)
	known.Accounts = policycheck.Ask(c.Context, references, nss.Getent)
	result := policycheck.Check(references, known)
	document.Warnings = append(document.Warnings, result.Warnings...)
	document.Unchecked = append(document.Unchecked, result.Unchecked...)
	slices.SortStableFunc(document.Warnings, func(a, b policycheck.Warning) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return nil
}

// checkCaps looks for caps that take nothing, or everything, and says who doesn't count.
func (o *checkOptions) checkCaps(document *CheckDocument, file *policy.File, known *policycheck.Known) {
	warn := func(at strictyaml.Place, kind, name, message string) {
		document.Warnings = append(document.Warnings, policycheck.Warning{
			Line: at.Line, Column: at.Column, Kind: kind, Name: name, Message: message,
		})
	}
	for _, w := range file.CapWarnings() {
		warn(w.Place, "cap", w.Key, w.Message)
	}
	hosts := func(yield func(enforce.Query, map[string]int) bool) {
		for i := range known.Hosts {
			name := snapshot.Hostname(known.Hosts[i].Name)
			if !yield(enforce.Query{Host: name, Labels: known.Hosts[i].Labels}, known.Models[name]) {
				return
			}
		}
	}
	for _, c := range file.CapList {
		if message := file.TakesAll(c, hosts); message != "" {
			warn(c.Place, "cap", c.ID(), message)
		}
	}
	if at := file.CountsNoneOutside(); at != nil {
		warn(*at, hintKind, string(enforce.RuleNonEnvProcesses),
			"people outside of environments don't count: write non-env-processes: count under `defaults:`")
	}
}

// checkMail looks for warnings that may be over before their mail arrives.
func (o *checkOptions) checkMail(document *CheckDocument, file *policy.File) {
	if file.Mail == nil {
		return
	}
	for _, at := range file.WarnsFor(enforcement.MailGather + file.Mail.Timeout) {
		document.Warnings = append(document.Warnings, policycheck.Warning{
			Line: at.Line, Column: at.Column, Kind: hintKind, Name: "warn",
			Message: "the warning may be over before its mail arrives, which leaves within a minute: write 5m or more",
		})
	}
}

const hintKind = "hint"

// refusable is how many of the warnings --strict refuses.
func refusable(d *CheckDocument) (n int) {
	_, others := policycheck.SplitAccounts(d.Warnings)
	for i := range others {
		if others[i].Kind != hintKind {
			n++
		}
	}
	return n
}

func (p *program) writeCheck(d *CheckDocument, wrong error) error {
	if wrong != nil {
		return command.UsageError("%w", wrong)
	}
	accounts, others := policycheck.SplitAccounts(d.Warnings)
	for _, w := range others {
		fmt.Fprintf(p.Err, "%s:%d:%d: warning: %s\n", text.Printable(d.File), w.Line, w.Column,
			text.Printable(w.Message))
	}
	if accounts != "" {
		fmt.Fprintf(p.Err, "%s: warning: %s\n", text.Printable(d.File), text.Printable(accounts))
	}
	for _, line := range d.Unchecked {
		fmt.Fprintf(p.Err, "Not checked: %s\n", text.Printable(line))
	}
	if !d.OK {
		return command.UsageError("%s: %s, which --strict makes an error", d.File,
			text.Plural(refusable(d), "warning"))
	}
	_, err := fmt.Fprintf(p.Out, "%s: OK\n", d.File)
	return err
}

func checkErrors(wrong error) []checkError {
	var list []checkError
	var joined interface{ Unwrap() []error }
	if errors.As(wrong, &joined) {
		for _, err := range joined.Unwrap() {
			var e *strictyaml.ParseError
			if errors.As(err, &e) {
				list = append(list, checkError{e.Place.Line, e.Place.Column, e.Message})
			}
		}
	}
	return list
}
