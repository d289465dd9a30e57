package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func policyCommand(p command.Program) *cli.Command {
	return &cli.Command{
		Name: "policy", Category: command.Configured,
		Usage:       "check and explain policy files, and try out their notices",
		Subcommands: []*cli.Command{policyCheckCommand(p), policyTestNotifyCommand(p), policyExplainCommand(p)},
	}
}

func inventoryFlag(to *[]string) cli.Flag {
	return command.Strings(to, "inventory,H",
		"the `HOSTS` of the fleet: hosts.yaml, or written as with -H elsewhere; several times").
		DefaultText("hosts.yaml in ~/.config/genv or /etc/genv")
}

func stateDirFlag(to *string) cli.Flag {
	return command.String(to, "state-dir", "the `DIR` of the controller").Config(command.Shared).
		Unless("STATE_DIRECTORY").DefaultText("that of the service, or one's own").Hide()
}

// remembered is the memory of the controllers in these folders, and why some is unread; nil if none is.
func remembered(dirs []string) (list []enforce.Memory, unread error) {
	for _, dir := range dirs {
		store, err := statedir.OpenToRead(dir)
		if err != nil {
			unread = cmp.Or(unread, err)
			continue
		}
		memory, err := store.Load(context.Background())
		switch {
		case err == nil:
			list = append(list, memory.Rules)
		case !errors.Is(err, fs.ErrNotExist):
			unread = cmp.Or(unread, err)
		}
		_ = store.Close() // nothing was written
	}
	return list, unread
}

// CheckDocument is the JSON of `genv policy check`.
type CheckDocument struct {
	Schema    string                `json:"schema"`
	File      string                `json:"file"`
	OK        bool                  `json:"ok"` // no error; with --strict no warning but for users without an account
	Errors    []checkError          `json:"errors"`
	Warnings  []policycheck.Warning `json:"warnings"`  // not errors
	Unchecked []string              `json:"unchecked"` // what could not be checked, and why
}

type checkError struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

type checkOptions struct {
	command.Program
	inventory []string
	leader    string
	usage     string
	stateDir  string
	policy    string // used without an argument
	strict    bool
	format    string
}

func policyCheckCommand(p command.Program) *cli.Command {
	o := &checkOptions{Program: p}
	return &cli.Command{
		Name: "check", ArgsUsage: "[FILE]",
		Usage: "list the errors of a policy file, and the users, hosts and labels in it that don't exist",
		Flags: []cli.Flag{
			inventoryFlag(&o.inventory),
			command.String(&o.leader, "leader", "the `URL` of the election of the controllers, if there are several").
				Config(command.Shared),
			command.String(&o.usage, "usage-db", "the `URL` of the database of the controllers").Config(command.Shared),
			stateDirFlag(&o.stateDir),
			command.String(&o.policy, "policy", "the policy `FILE`").
				Config(command.Top | command.Shared | command.OrNone).Hide(),
			command.Bool(&o.strict, "strict",
				"exit with 1 for warnings, too, but for users without an account on this machine"),
			command.FormatFlag(&o.format, "tui", "json"),
		},
		Action: o.run,
	}
}

// readInventory returns the known hosts and host groups; nil without an inventory.
func readInventory(
	getenv func(string) string, named []string,
) (hosts []remote.Host, groups map[string][]string, err error) {
	selection := inventory.Selection{
		Hosts: named, All: true,
		DefaultFiles: command.ConfigPaths(getenv, command.HostsFile), OpenDefault: command.OpenConfig,
	}
	if hosts, groups, err = inventory.Known(selection, command.OpenAtOnce); err != nil || len(selection.Hosts) == 0 {
		return hosts, groups, err
	}
	more, err := inventory.Load(selection, command.OpenAtOnce) // some may be in no file
	return append(hosts, more...), groups, err
}

func (o *checkOptions) run(c *cli.Context) error {
	path := cmp.Or(c.Args().First(), o.policy)
	if path == "" || path == command.NoPolicy || c.Args().Len() > 1 {
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
		if _, refused := errors.AsType[*strictyaml.ParseError](err); refused {
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

func (o *checkOptions) checkNames(c *cli.Context, document *CheckDocument, data []byte) error {
	file, err := policy.Parse(document.File, data)
	if err != nil {
		return err
	}
	var known policycheck.Known
	if known.Hosts, known.Groups, err = readInventory(o.Getenv, o.inventory); err != nil {
		return err
	}
	if known.Groups != nil {
		if err := file.UseHostGroups(func() (map[string][]string, error) { return known.Groups, nil }); err != nil {
			return err
		}
	}
	if err := file.CheckHours(o.leader == "" || store.IsServer(o.usage)); err != nil {
		return err
	}
	known.Models = make(map[snapshot.Hostname]map[string]int)
	memories, unread := remembered(enforcement.ControllerDirs(o.Getenv, o.stateDir))
	known.ModelsErr = unread
	for _, rules := range memories {
		for name, host := range rules.Hosts {
			known.Models[name] = host.GPUs
		}
	}
	hosts := func(yield func(enforce.Query, map[string]int) bool) {
		for i := range known.Hosts {
			name := snapshot.Hostname(known.Hosts[i].Name)
			if !yield(enforce.Query{Host: name, Labels: known.Hosts[i].Labels}, known.Models[name]) {
				return
			}
		}
	}
	for _, w := range file.Warnings(hosts) {
		document.Warnings = append(document.Warnings, policycheck.Warning{
			Line: w.Place.Line, Column: w.Place.Column, Kind: w.Kind, Name: w.Name, Message: w.Message,
		})
	}
	// For `genv enforce` on this machine, which remembers its GPUs without a name: caps are checked without it.
	if own, err := os.Hostname(); err == nil && len(known.Hosts) > 0 {
		known.Hosts = append(known.Hosts, remote.Host{Name: own})
	}
	known.Accounts = policycheck.Ask(c.Context, file.References, nss.Getent)
	warnings, notChecked := policycheck.Check(file.References, known)
	document.Warnings = append(document.Warnings, warnings...)
	document.Unchecked = append(document.Unchecked, notChecked...)
	slices.SortStableFunc(document.Warnings, func(a, b policycheck.Warning) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return nil
}

func refusable(d *CheckDocument) (n int) {
	_, others := policycheck.SplitAccounts(d.Warnings)
	for i := range others {
		if others[i].Kind != policy.Hint {
			n++
		}
	}
	return n
}

func (o *checkOptions) writeCheck(d *CheckDocument, wrong error) error {
	if wrong != nil {
		return command.UsageError("%w", wrong)
	}
	accounts, others := policycheck.SplitAccounts(d.Warnings)
	for _, w := range others {
		kind := "warning"
		if w.Kind == policy.Hint {
			kind = "advice"
		}
		o.Warnf("%s:%d:%d: %s: %s", d.File, w.Line, w.Column, kind, w.Message)
	}
	if accounts != "" {
		o.Warnf("%s: warning: %s", d.File, accounts)
	}
	for _, line := range d.Unchecked {
		o.Warn("Not checked: " + line)
	}
	if !d.OK {
		return command.UsageError("%s: %s, which --strict makes an error", d.File, text.Plural(refusable(d), "warning"))
	}
	_, err := fmt.Fprintf(o.Out, "%s: OK\n", d.File)
	return err
}

func checkErrors(wrong error) []checkError {
	list := []checkError{}
	joined, _ := errors.AsType[interface {
		error
		Unwrap() []error
	}](wrong)
	if joined == nil {
		return list
	}
	for _, err := range joined.Unwrap() {
		if e, ok := errors.AsType[*strictyaml.ParseError](err); ok {
			list = append(list, checkError{e.Place.Line, e.Place.Column, e.Message})
		}
	}
	return list
}
