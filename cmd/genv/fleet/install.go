package fleet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/install"
	"github.com/seed-3119e985/genv/remote/install/onhost"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type installOptions struct {
	listFlags
	onhost.Options
	timeout      time.Duration
	programs     map[string]*install.Binary
	amd64, arm64 string // files
	uninstall    bool
	askPassword  bool
	password     *install.Password
}

func installCommand(h hostFlags) *cli.Command {
	o := &installOptions{listFlags: listFlags{hostFlags: h}}
	o.Extras, o.timeout = true, 10*time.Minute
	const otherArch = "`FILE` with genv for hosts with this architecture, if this one is for another"
	return &cli.Command{
		Name: "install", Category: command.Personal,
		Usage: "install this genv on the hosts, with the lines of sudoers that a controller needs; " +
			"or upgrade or uninstall it",
		Flags: o.flags(ownHosts, append(command.OutputFlags(&o.output),
			command.Bool(&o.Check, "check", "change nothing; print what is installed and what would be done, and exit "+
				"with 10 if something would change, or with 3 if a host would be refused, such as one that needs --upgrade"),
			command.Bool(&o.Upgrade, "upgrade",
				"replace another version of genv; connected controllers continue with the new one"),
			command.Bool(&o.ShellSetup, "shell-setup", "put genv into the interactive shells of all users, "+
				"by /etc/bash.bashrc and /etc/zsh/zshrc, or /etc/bashrc and /etc/zshrc"),
			command.Bool(&o.uninstall, "uninstall", "remove genv and what came with it; state, logs and the account "+
				"stay"),
			command.Bool(&o.Purge, "purge", "remove state and logs, too, if no environment is active; "+
				"only the account stays"),
			command.String(&o.State, "state", "`WHO` owns the state: root (by its service, docs/host.md) or shared "+
				"(every user)").OneOf(onhost.StateRoot, onhost.StateShared).
				DefaultText("root on new hosts, else as it is"),
			command.String(&o.Path, "path", "`PATH` of genv on the hosts").
				Config(command.Site).DefaultText(remote.DefaultGenv+", or `genv:` of hosts.yaml"),
			command.String(&o.Account, "sudoers-for",
				"the `USER` who may run genv with sudo on the hosts, without a password").Config(command.Site).Hide(),
			command.String(&o.amd64, "binary-amd64", otherArch).Config(command.Site),
			command.String(&o.arm64, "binary-arm64", otherArch).Config(command.Site),
			command.Bool(&o.askPassword, "ask-sudo-password",
				"ask once for sudo's password, for hosts where sudo wants one"),
			command.Duration(&o.timeout, "host-timeout", "`TIME` for everything on a host").Config(command.Site),
		)...),
		Action: o.run,
	}
}

func (o *installOptions) read(c *cli.Context) (config hostConfig, err error) {
	if config, err = o.readConfig(c); err != nil {
		return config, err
	}
	config.SSH.CommandTimeout = o.timeout // the installer has a shorter one where it uploads nothing
	if o.Path != "" {
		if err := onhost.CheckPath(o.Path); err != nil {
			return config, command.WrongFlag("path", " %w", err)
		}
	}
	if o.Account != "" {
		if err := text.CheckUsername(o.Account); err != nil {
			return config, command.WrongFlag("sudoers-for", " %w", err)
		}
	}
	o.uninstall = o.uninstall || o.Purge
	if o.uninstall && (o.Upgrade || o.ShellSetup || o.State != "") {
		return config, command.WrongFlag("uninstall", " and --purge exclude --upgrade, --shell-setup and --state")
	}
	if err = o.readAccount(); err != nil {
		return config, err
	}
	if o.programs, err = readPrograms(o.amd64, o.arm64); err != nil || !o.askPassword {
		return config, err
	}
	if o.insecureIgnoreHostKeys {
		return config, command.WrongFlag("ask-sudo-password", " and --insecure-ignore-host-keys exclude each other: "+
			"a machine in the place of a host would get the password")
	}
	o.password, err = askPassword(config.SSH.Prompt)
	return config, err
}

// readAccount takes the account from config.yaml if no flag names one.
func (o *installOptions) readAccount() error {
	account, err := command.Account(o.Getenv)
	if err != nil || account == "" || o.Account != "" {
		return err
	}
	const controllerKey = "/etc/genv/controller.pub" // made by the package
	o.Account = account
	data, err := os.ReadFile(controllerKey)
	if err != nil && o.uninstall {
		return nil
	}
	if err != nil {
		return command.UsageError("the key of the account %s: %w; make one as %s with ssh-keygen, "+
			"and copy its public half there", account, err, account)
	}
	key, comment, _, _, err := ssh.ParseAuthorizedKey(data)
	if err != nil {
		return command.UsageError("%s: %w", controllerKey, err)
	}
	o.Key = strings.TrimSpace(strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " " + text.OneLine(comment))
	return nil
}

// readPrograms adds this machine's genv unless a file for its architecture is given.
func readPrograms(amd64, arm64 string) (map[string]*install.Binary, error) {
	found := make(map[string]*install.Binary)
	for flag, file := range map[string]string{"amd64": amd64, "arm64": arm64} {
		if file == "" {
			continue
		}
		program, err := readProgram(file)
		if err == nil && program.Arch != flag {
			err = fmt.Errorf("it is for %s", program.Arch)
		}
		if err != nil {
			return nil, command.WrongFlag("binary-"+flag, " %s: %w", file, err)
		}
		found[flag] = program
	}
	if found[runtime.GOARCH] != nil {
		return found, nil
	}
	program, err := readProgram("/proc/self/exe") // even if its path now has another file
	if err != nil {
		return nil, fmt.Errorf("read this program, to install it: %w", err)
	}
	found[program.Arch] = program
	return found, nil
}

func readProgram(file string) (*install.Binary, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return install.NewProgram(data)
}

func askPassword(prompt func(string) ([]byte, error)) (*install.Password, error) {
	if prompt == nil {
		return nil, command.WrongFlag("ask-sudo-password", " needs a terminal")
	}
	secret, err := prompt("Password for sudo on the hosts: ")
	if err != nil {
		return nil, fmt.Errorf("read the password: %w", err)
	}
	password, err := install.NewPassword(secret)
	if err != nil {
		return nil, command.UsageError("%w", err)
	}
	return password, nil
}

func (o *installOptions) run(c *cli.Context) error {
	config, err := o.read(c)
	if err != nil {
		return err
	}
	if o.password != nil {
		defer o.password.Wipe()
	}
	f, err := o.open(config)
	if err != nil {
		return err
	}
	defer f.close()
	i := &install.Installer{
		Runner: f.client, Programs: o.programs, Options: o.Options, Timeout: o.timeout, Password: o.password,
	}
	work := i.Install
	if o.uninstall {
		work = i.Uninstall
	}
	results := controller.Ask(c.Context, f.asker(), work)
	failures := render.FailuresOf(results)
	f.report(failures, nil)
	changed, err := o.write(results, failures)
	if err == nil {
		err = f.exit(failures, nil)
	}
	if err == nil && o.Check && changed {
		return &command.ExitError{Code: command.ExitWork}
	}
	return err
}

// InstallDocument is the JSON of `genv remote install`.
type InstallDocument struct {
	Schema string           `json:"schema"`
	Check  bool             `json:"check"` // nothing was changed
	Hosts  []installedHost  `json:"hosts"`
	Failed []remote.Failure `json:"failed"`
}

type installedHost struct {
	Host string `json:"host"`
	onhost.Outcome
}

// write also reports whether a host changed.
func (o *installOptions) write(results []remote.Result[*onhost.Outcome], failures []remote.Failure) (bool, error) {
	document := InstallDocument{
		Schema: "genv.remote.install/1", Check: o.Check, Hosts: []installedHost{}, Failed: failures,
	}
	changed := false
	table := o.output.Table("HOST:6", "ARCH:6", "PATH:6", "BEFORE:8", "NOW:5", "SUDOERS FOR:13", "RESULT:8")
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		h := installedHost{r.Host.Name, *r.Value}
		h.Notes = append([]string{}, h.Notes...) // an empty list, not null
		document.Hosts = append(document.Hosts, h)
		changed = changed || h.Result != onhost.Unchanged
		result := h.Result
		if o.Check && h.Result != onhost.Unchanged {
			result = "would be " + result
		}
		same := h.Before != nil && h.Now != nil && h.Before.Version == h.Now.Version && h.Before.Sum != h.Now.Sum
		table.Add(h.Host, h.Arch, h.Path, versionCell(h.Before, same), versionCell(h.Now, same), sudoersCell(&h),
			result)
	}
	switch {
	case o.output.Format == "json":
		return changed, render.WriteJSON(o.Out, document)
	case len(document.Hosts) == 0:
		return changed, nil
	}
	err := table.Write(o.Out)
	if o.output.Format == "tui" {
		err = errors.Join(err, writeNotes(o.Out, document.Hosts))
	}
	return changed, err
}

func writeNotes(w io.Writer, hosts []installedHost) error {
	var notes []string
	with := map[string][]string{}
	for _, h := range hosts {
		for _, note := range h.Notes {
			if with[note] == nil {
				notes = append(notes, note)
			}
			with[note] = append(with[note], h.Host)
		}
	}
	table := render.Output{Format: "tui", NoHeader: true}.Table("HOST", "NOTE")
	for _, note := range notes {
		table.Add(render.Hosts(with[note])+":", note)
	}
	return table.Write(w)
}

// versionCell adds the start of the checksum on request, or if the version is unknown.
func versionCell(v *onhost.Version, withSum bool) string {
	if v == nil {
		return "-"
	}
	sum := "sha256 " + v.Sum[:min(len(v.Sum), 12)]
	switch {
	case v.Version == "":
		return sum
	case withSum:
		return v.Version + " (" + sum + ")"
	}
	return v.Version
}

func sudoersCell(h *installedHost) string {
	switch {
	case h.Sudoers && h.Result == onhost.Uninstalled:
		return "removed"
	case h.Account == "":
		return "-"
	}
	return h.Account
}
