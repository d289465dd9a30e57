package fleet

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *program) policyCommand() *cli.Command {
	return &cli.Command{
		Name:     "policy",
		Category: command.Configured,
		Usage:    "check and explain policy files, and try out their notices",
		Subcommands: []*cli.Command{
			p.policyCheckCommand(), p.policyTestNotifyCommand(),
			{
				Name: "explain", Usage: "print the settings for a user on a host, and where each comes from",
				Flags: append(append(inventoryFlags(), policycheck.RuleFlags()...), command.FormatFlag("tui", "csv", "json"),
					&cli.StringFlag{Name: "user", Usage: "the settings for this `USER`; without it, those for users that the policy doesn't name"},
					&cli.StringFlag{Name: "host", Usage: "on this `HOST`, by its name in the inventory"},
					&cli.StringFlag{Name: "at", Usage: "at this `TIME`, such as 2026-11-20T22:00; now by default"},
				),
				Action: p.policyExplain,
			},
		},
	}
}

func (p *program) policyExplain(c *cli.Context) error {
	output := command.ReadOutput(c)
	q := enforce.Query{User: snapshot.Username(c.String("user")), Host: snapshot.Hostname(c.String("host")), Labels: map[string]string{}}
	var err error
	if q.At, err = p.Time(c.String("at")); err != nil {
		return err
	}
	if err := p.addLabels(c, &q); err != nil {
		return err
	}
	file, err := policycheck.ReadPolicy(c)
	if err != nil {
		return err
	}
	return p.writeExplanation(output, q, file.Explain(q))
}

// addLabels adds the labels that the inventory has for a host.
func (p *program) addLabels(c *cli.Context, q *enforce.Query) error {
	if q.Host == "" {
		return nil
	}
	hosts, _, err := p.readInventory(c)
	if err != nil {
		return err
	}
	names := make([]string, len(hosts))
	for i := range hosts {
		names[i] = hosts[i].Name
		if text.FoldHost(hosts[i].Name) != text.FoldHost(string(q.Host)) {
			continue
		}
		maps.Copy(q.Labels, hosts[i].Labels)
		return nil
	}
	if len(hosts) > 0 {
		p.Warn(fmt.Sprintf("warning: host %q is not in the inventory, so it has no labels; %s",
			q.Host, text.Hint(string(q.Host), names, "correct the name, or add it there")))
	}
	return nil
}

func (p *program) writeExplanation(output render.Output, q enforce.Query, list []policy.Explanation) error {
	if output.Format == "json" {
		return render.WriteJSON(p.Out, ExplainDocument{
			Schema: "genv.policy.explain/1", User: q.User, Host: q.Host, Labels: q.Labels, At: q.At.Format(time.RFC3339), Settings: list,
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
	Schema    string                `json:"schema"`
	File      string                `json:"file"`
	OK        bool                  `json:"ok"` // no error, and with --strict no warning but for users without an account; then the exit code is 0
	Errors    []checkError          `json:"errors"`
	Warnings  []policycheck.Warning `json:"warnings"`  // keys that do nothing any more, and unknown names
	Unchecked []string              `json:"unchecked"` // what could not be checked, and why
}

type checkError struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

func (p *program) policyCheckCommand() *cli.Command {
	return &cli.Command{
		Name: "check", ArgsUsage: "[FILE]",
		Usage: "list the errors of a policy file, and the users, hosts and labels in it that don't exist",
		Flags: append(inventoryFlags(),
			&cli.BoolFlag{Name: "strict", Usage: "exit with 1 for warnings, too, but for users without an account on this machine"},
			command.FormatFlag("tui", "json")),
		Action: p.policyCheck,
	}
}

// inventoryFlags name the inventory for commands that connect to no host.
func inventoryFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "inventory", Aliases: []string{"H"}, DefaultText: "hosts.yaml in ~/.config/genv or /etc/genv", Usage: "the `HOSTS` of the fleet: hosts.yaml, or written as with -H elsewhere; several times"},
	}
}

// readInventory returns the hosts that there are, and the groups as @name; none without an
// inventory.
func (p *program) readInventory(c *cli.Context) (hosts []remote.Host, groups []string, err error) {
	selection := inventory.Selection{
		Hosts: c.StringSlice("inventory"), All: true,
		DefaultFiles: command.ConfigPaths(p.Getenv, command.HostsFile), OpenDefault: command.OpenConfig,
	}
	if hosts, groups, err = inventory.Known(selection, command.OpenAtOnce); err != nil || len(selection.Hosts) == 0 {
		return hosts, groups, err
	}
	named, err := inventory.Load(selection, command.OpenAtOnce) // they may be in no file
	return append(hosts, named...), groups, err
}

func (p *program) policyCheck(c *cli.Context) error {
	path := c.Args().First()
	if path == "" {
		found, err := command.FindConfig(p.Getenv, command.PolicyFile)
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
	document := CheckDocument{Schema: "genv.policy.check/1", File: path, Errors: []checkError{}, Warnings: []policycheck.Warning{}, Unchecked: []string{}}
	wrong := policy.Check(path, data)
	if wrong == nil {
		if err := p.checkNames(c, &document, data); err != nil {
			return err
		}
	}
	document.Errors = append(document.Errors, checkErrors(wrong)...)
	_, others := policycheck.SplitAccounts(document.Warnings)
	document.OK = wrong == nil && (len(others) == 0 || !c.Bool("strict"))
	if command.String(c, "format") == "json" {
		if err := render.WriteJSON(p.Out, document); err != nil || document.OK {
			return err
		}
		return &command.ExitError{Code: command.ExitFailed}
	}
	return p.writeCheck(&document, wrong)
}

// checkNames looks for keys that do nothing any more, and for the names in a policy.
func (p *program) checkNames(c *cli.Context, document *CheckDocument, data []byte) error {
	file, err := policy.Parse(document.File, data)
	if err != nil {
		return err
	}
	for _, key := range file.Ignored {
		document.Warnings = append(document.Warnings, policycheck.Warning{Line: key.Place.Line, Column: key.Place.Column, Kind: "key", Name: key.Key, Message: key.Message})
	}
	references, err := policy.References(document.File, data)
	if err != nil {
		return err
	}
	var known policycheck.Known
	if known.Hosts, known.Groups, err = p.readInventory(c); err != nil {
		return err
	}
	if own, err := os.Hostname(); err == nil && len(known.Hosts) > 0 { // of `genv enforce` here
		known.Hosts = append(known.Hosts, remote.Host{Name: own})
	}
	known.Accounts = policycheck.Ask(c.Context, references, nss.Getent)
	result := policycheck.Check(references, known)
	document.Warnings = append(document.Warnings, result.Warnings...)
	document.Unchecked = append(document.Unchecked, result.Unchecked...)
	return nil
}

func (p *program) writeCheck(d *CheckDocument, wrong error) error {
	if wrong != nil {
		return command.UsageError("%w", wrong)
	}
	accounts, others := policycheck.SplitAccounts(d.Warnings)
	for _, w := range others {
		fmt.Fprintf(p.Err, "%s:%d:%d: warning: %s\n", text.Printable(d.File), w.Line, w.Column, text.Printable(w.Message))
	}
	if accounts != "" {
		fmt.Fprintf(p.Err, "%s: warning: %s\n", text.Printable(d.File), text.Printable(accounts))
	}
	for _, line := range d.Unchecked {
		fmt.Fprintf(p.Err, "Not checked: %s\n", text.Printable(line))
	}
	if !d.OK {
		return command.UsageError("%s: %s, which --strict makes an error", d.File, render.Plural(len(others), "warning"))
	}
	_, err := fmt.Fprintf(p.Out, "%s: OK\n", d.File)
	return err
}

// checkErrors are the errors of a policy file one by one.
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
