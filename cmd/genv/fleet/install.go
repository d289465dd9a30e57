package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/install"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *program) installCommand() *cli.Command {
	return &cli.Command{
		Name: "install", Category: command.Personal,
		Usage:  "install this genv on the hosts, with the lines of sudoers that a controller needs; or upgrade or uninstall it",
		Flags:  remoteFlags(ownHosts, installFlags()...),
		Action: p.remoteInstall,
	}
}

func installFlags() []cli.Flag {
	return append(
		command.OutputFlags(),
		&cli.BoolFlag{Name: "check", Usage: "change nothing; print what is installed and what would be done, and exit with 10 if something would change"},
		&cli.BoolFlag{Name: "upgrade", Usage: "replace another version of genv; connected controllers continue with the new one"},
		&cli.BoolFlag{Name: "shell-setup", Usage: "put genv into the interactive shells of all users, by /etc/bash.bashrc and /etc/zsh/zshrc, or /etc/bashrc and /etc/zshrc"},
		&cli.BoolFlag{Name: "uninstall", Usage: "remove genv and what came with it; state, logs and the account stay"},
		&cli.BoolFlag{Name: "purge", Usage: "remove state and logs, too, if no environment is active; only the account stays"},
		command.OneOf(&cli.StringFlag{Name: "state", DefaultText: "root on new hosts, else as it is", Usage: "`WHO` owns the state: root (by its service, docs/host.md) or shared (every user)"}, []string{string(install.StateRoot), string(install.StateShared)}),
		&cli.StringFlag{Name: "path", Category: command.Site, DefaultText: remote.DefaultGenv + ", or `genv:` of hosts.yaml", Usage: "`PATH` of genv on the hosts"},
		&cli.StringFlag{Name: "sudoers-for", Hidden: true, Category: command.Site, Usage: "the `USER` who may run genv with sudo on the hosts, without a password"},
		&cli.StringFlag{Name: "binary-amd64", Category: command.Site, Usage: "`FILE` with genv for hosts with this architecture, if this one is for another"},
		&cli.StringFlag{Name: "binary-arm64", Category: command.Site, Usage: "`FILE` with genv for hosts with this architecture, if this one is for another"},
		&cli.BoolFlag{Name: "ask-sudo-password", Usage: "ask once for sudo's password, for hosts where sudo wants one"},
		command.Lasting(&cli.StringFlag{Name: "host-timeout", Category: command.Site, Value: "10m", Usage: "`TIME` for everything on a host"}),
	)
}

// installation is what the flags of `genv remote install` say.
type installation struct {
	listing
	options   install.Options
	programs  install.Programs
	check     bool
	uninstall bool
	password  *install.Password
}

func (p *program) readInstallation(c *cli.Context) (*installation, error) {
	flags, err := p.readListing(c)
	if err != nil {
		return nil, err
	}
	f := &installation{
		listing: flags, check: c.Bool("check"), uninstall: c.Bool("uninstall") || c.Bool("purge"),
		options: install.Options{Path: c.String("path"), Account: c.String("sudoers-for"), Upgrade: c.Bool("upgrade"), State: install.Ownership(c.String("state")), Extras: true, ShellSetup: c.Bool("shell-setup"), Purge: c.Bool("purge"), Timeout: command.Duration(c, "host-timeout")},
	}
	f.SSH.CommandTimeout = f.options.Timeout // the installer has a shorter one for what uploads nothing
	if path := f.options.Path; path != "" {
		if err := install.CheckPath(path); err != nil {
			return nil, command.UsageError("--path %w", err)
		}
	}
	if account := f.options.Account; account != "" {
		if err := text.CheckUsername(account); err != nil {
			return nil, command.UsageError("--sudoers-for %w", err)
		}
	}
	if f.uninstall && (f.options.Upgrade || f.options.ShellSetup || f.options.State != "") {
		return nil, command.UsageError("--uninstall and --purge exclude --upgrade, --shell-setup and --state")
	}
	if err = p.readAccount(f); err != nil {
		return nil, err
	}
	if f.programs, err = readPrograms(c.String("binary-amd64"), c.String("binary-arm64")); err != nil {
		return nil, err
	}
	if c.Bool("ask-sudo-password") {
		if f.SSH.InsecureHostKeys {
			return nil, command.UsageError("--ask-sudo-password and --insecure-ignore-host-keys exclude each other: a machine in the place of a host would get the password")
		}
		f.password, err = p.askPassword(f.SSH.Prompt)
	}
	return f, err
}

// controllerKey is the public key of the controller's account, which the package makes.
const controllerKey = "/etc/genv/controller.pub"

// readAccount has hosts get the controller's account with its key, where config.yaml names one and no flag does.
func (p *program) readAccount(f *installation) error {
	o := &f.options
	account, err := command.Account(p.Getenv)
	if err != nil || account == "" || o.Account != "" {
		return err
	}
	o.Account = account
	data, err := os.ReadFile(controllerKey)
	if err != nil && f.uninstall {
		return nil
	}
	if err != nil {
		return command.UsageError("the key of the account %s: %w; make one as %s with ssh-keygen, and copy its public half there", account, err, account)
	}
	key, comment, _, _, err := ssh.ParseAuthorizedKey(data)
	if err != nil {
		return command.UsageError("%s: %w", controllerKey, err)
	}
	o.Key = strings.TrimSpace(strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " " + text.OneLine(comment))
	return nil
}

// readPrograms reads the genv of this machine, unless a file is given for its architecture,
// and the files that are given.
func readPrograms(amd64, arm64 string) (install.Programs, error) {
	found := make(install.Programs)
	for flag, file := range map[string]string{"amd64": amd64, "arm64": arm64} {
		if file == "" {
			continue
		}
		program, err := readProgram(file)
		if err == nil && program.Arch != flag {
			err = fmt.Errorf("it is for %s", program.Arch)
		}
		if err != nil {
			return nil, command.UsageError("--binary-%s %s: %w", flag, file, err)
		}
		found[flag] = program
	}
	if found[runtime.GOARCH] != nil {
		return found, nil
	}
	program, err := readProgram("/proc/self/exe") // also if another file is at its path by now
	if err != nil {
		return nil, fmt.Errorf("read this program, to install it: %w", err)
	}
	found[program.Arch] = program
	return found, nil
}

func readProgram(file string) (*install.Program, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return install.NewProgram(data)
}

// askPassword asks on the terminal.
func (p *program) askPassword(prompt func(string) ([]byte, error)) (*install.Password, error) {
	if prompt == nil {
		return nil, command.UsageError("--ask-sudo-password needs a terminal")
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

// remoteInstall installs genv on all hosts.
func (p *program) remoteInstall(c *cli.Context) error {
	flags, err := p.readInstallation(c)
	if err != nil {
		return err
	}
	if flags.password != nil {
		defer flags.password.Wipe()
	}
	f, err := p.open(flags.Config)
	if err != nil {
		return err
	}
	defer f.close()
	installer := &install.Installer{Runner: f.client, Programs: flags.programs, Options: flags.options, Password: flags.password}
	results := controller.Ask(c.Context, f.asker(), flags.work(installer))
	f.progress.End()
	failures := render.FailuresOf(results)
	f.report(failures, nil)
	if err := flags.write(p.Out, results, failures); err != nil {
		return err
	}
	if err := f.exit(failures, nil); err != nil {
		return err
	}
	if flags.check && countChanged(results) > 0 {
		return &command.ExitError{Code: command.ExitWork}
	}
	return nil
}

// work is what is done on each host.
func (f *installation) work(i *install.Installer) func(context.Context, remote.Host) (*install.Outcome, error) {
	switch {
	case f.uninstall && f.check:
		return i.CheckUninstall
	case f.uninstall:
		return i.Uninstall
	case f.check:
		return i.Check
	}
	return i.Install
}

// InstallDocument is the JSON of `genv remote install`; docs/json.md describes it.
type InstallDocument struct {
	Schema string           `json:"schema"`
	Check  bool             `json:"check"` // nothing was changed
	Hosts  []installedHost  `json:"hosts"`
	Failed []remote.Failure `json:"failed"`
}

type installedHost struct {
	Host string `json:"host"`
	install.Outcome
}

func (f *installation) write(w io.Writer, results []remote.Result[*install.Outcome], failures []remote.Failure) error {
	document := InstallDocument{Schema: "genv.remote.install/1", Check: f.check, Hosts: []installedHost{}, Failed: failures}
	for i := range results {
		if o := results[i].Value; results[i].Err == nil {
			o.Notes = append([]string{}, o.Notes...) // an empty list, not null
			document.Hosts = append(document.Hosts, installedHost{results[i].Host.Name, *o})
		}
	}
	if f.output.Format == "json" {
		return render.WriteJSON(w, document)
	}
	if len(document.Hosts) == 0 {
		return nil
	}
	table := f.output.Table(render.Col("HOST", 6), render.Col("ARCH", 6), render.Col("PATH", 6), render.Col("BEFORE", 8),
		render.Col("NOW", 5), render.Col("SUDOERS FOR", 13), render.Col("RESULT", 8))
	for _, h := range document.Hosts {
		result := string(h.Result)
		if f.check && h.Result != install.Unchanged {
			result = "would be " + result
		}
		same := h.Before != nil && h.Now != nil && h.Before.Version == h.Now.Version && h.Before.Sum != h.Now.Sum
		table.Add(h.Host, h.Arch, h.Path, versionCell(h.Before, same), versionCell(h.Now, same), sudoersCell(&h), result)
	}
	err := table.Write(w)
	if f.output.Format == "tui" {
		err = errors.Join(err, writeNotes(w, document.Hosts))
	}
	return err
}

// writeNotes writes each note once, with all hosts that have it.
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
	table := render.Output{Format: "tui", NoHeader: true}.Table(render.Col("HOST", 0), render.Col("NOTE", 0))
	for _, note := range notes {
		table.Add(render.Hosts(with[note])+":", note)
	}
	return table.Write(w)
}

// versionCell is a version; with the beginning of its checksum if that is asked for, and
// that alone if the version is unknown.
func versionCell(v *install.Version, withSum bool) string {
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
	case h.Sudoers && h.Result == install.Uninstalled:
		return "removed"
	case h.Account == "":
		return "-"
	}
	return h.Account
}

func countChanged(results []remote.Result[*install.Outcome]) (changed int) {
	for _, r := range results {
		if r.Err == nil && r.Value.Result != install.Unchanged {
			changed++
		}
	}
	return changed
}
