// Package install puts genv on hosts, upgrades it and removes it: the program, its shims
// and the lines of sudoers(5) with which a controller runs it.
//
//	installer := install.Installer{
//		Runner: client, Programs: install.Programs{"amd64": program}, Options: install.Options{Upgrade: true},
//	}
//	results := remote.Each(ctx, hosts, fanout, installer.Install)
//
// For each host it looks first, as the login and then as root, and decides what is to be done; Decide is pure. What
// changes the host is one script that root runs there with the program on its stdin: everything is written under
// temporary names in the folders where it belongs, checked there (checksum, a run of the program, visudo), and renamed.
// So at any moment the host has the old program or the new one, and lines of sudoers that are valid. What an
// interrupted run leaves behind, the next one removes.
//
// Hosts are known by remote.Host, and commands are run by a remote.Runner. The package
// prints nothing, asks for no password (see Password), and doesn't install packages.
package install

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Options are what is installed, and how.
type Options struct {
	// Path is the place of the program; empty is that of the host's GenvPath if it is
	// absolute, or else remote.DefaultGenv.
	Path string
	// Account is who may run genv by sudoers; empty is the login.
	Account string
	Key     string // with which a controller logs in as the account, which is made if missing; empty for none
	// Upgrade replaces another genv at Path.
	Upgrade bool
	// State is who is to own the state; empty to decide that on new hosts alone.
	State Ownership
	// Extras are man pages, completion, the unit of genv-enforce and a link in /usr/bin; ShellSetup puts genv
	// into the shells of all users, too.
	Extras, ShellSetup bool
	// Purge has Uninstall remove state and logs, too.
	Purge bool
	// Timeout is for everything on a host; 0 is 10 minutes.
	Timeout time.Duration
}

const (
	defaultTimeout = 10 * time.Minute
	// askTimeout is for a script that uploads nothing.
	askTimeout = time.Minute
)

// Installer installs genv on hosts. It is safe for concurrent use.
type Installer struct {
	Runner   remote.Runner
	Programs Programs
	Options  Options
	Password *Password // nil to use none
}

// Version is a genv on a host.
type Version struct {
	Version string `json:"version"` // empty if it isn't known, as with --check for a new one
	Sum     string `json:"sha256"`
}

// Outcome is what was done on a host; in JSON, a part of the document of `genv remote install`.
type Outcome struct {
	Arch    string   `json:"arch"`
	Path    string   `json:"path"`                 // of genv there
	Before  *Version `json:"before"`               // the genv there before it
	Now     *Version `json:"now"`                  // the genv after it
	Result  Result   `json:"result"`               // with --check: what would be done
	Account string   `json:"sudoers_for,omitzero"` // an account
	Sudoers bool     `json:"sudoers_changed"`      // written, or removed
	Shims   bool     `json:"shims_changed"`        // linked, or removed
	Notes   []string `json:"notes"`                // what else the administrator should know
}

// visit is the work on one host.
type visit struct {
	*Installer
	host    remote.Host
	login   Login
	access  rootAccess
	state   *State
	wanted  Wanted
	outcome Outcome
}

// Check says what Install would do.
func (i *Installer) Check(ctx context.Context, h remote.Host) (*Outcome, error) {
	ctx, cancel := i.limited(ctx)
	defer cancel()
	v, _, err := i.plan(ctx, h)
	return v.result(err)
}

// Install installs genv on a host. If the connection is lost, the host has the old genv or the new one.
func (i *Installer) Install(ctx context.Context, h remote.Host) (*Outcome, error) {
	ctx, cancel := i.limited(ctx)
	defer cancel()
	v, plan, err := i.plan(ctx, h)
	if err == nil && (plan.files() || plan.Clean) {
		err = v.apply(ctx, plan)
	}
	if err == nil && (plan.State != "" || plan.Units) {
		err = v.changeState(ctx, plan.State)
	}
	if err == nil && plan.Extras {
		err = v.addExtras(ctx, plan.Program)
	}
	if err == nil {
		err = v.verify(ctx)
	}
	return v.result(err)
}

func (i *Installer) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := cmp.Or(i.Options.Timeout, defaultTimeout)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s: %w", limit, remote.ErrLate))
}

func (v *visit) result(err error) (*Outcome, error) {
	if err != nil {
		return nil, err
	}
	return &v.outcome, nil
}

// plan looks at a host and decides.
func (i *Installer) plan(ctx context.Context, h remote.Host) (*visit, *Plan, error) {
	v, err := i.look(ctx, h)
	if err != nil {
		return v, nil, err
	}
	arch := archOf(v.login.Machine)
	program := i.Programs[arch]
	switch {
	case v.login.System != "Linux" || arch == "":
		return v, nil, refuse("genv runs on Linux on amd64 and arm64", "the host is %s on %s", v.login.System,
			v.login.Machine)
	case program == nil:
		return v, nil, refuse(fmt.Sprintf("name a genv for it with --binary-%s FILE", arch),
			"the host is %s, and this genv is for %s", arch, i.Programs.names())
	}
	v.wanted.Extras = i.Options.Extras
	v.wanted.Program, v.wanted.Upgrade = program, i.Options.Upgrade
	v.wanted.State, v.wanted.Key = i.Options.State, i.Options.Key
	plan, err := Decide(&v.wanted, v.login, v.state)
	if err != nil {
		return v, nil, err
	}
	v.outcome.Arch, v.outcome.Result, v.outcome.Notes = arch, plan.Result, plan.Notes
	v.outcome.Sudoers, v.outcome.Shims = plan.Sudoers != "", plan.Shims
	v.outcome.Now = &Version{Sum: program.Sum}
	if !plan.Program {
		v.outcome.Now.Version = v.login.Version
	}
	return v, plan, nil
}

// look asks a host what it is and has.
func (i *Installer) look(ctx context.Context, h remote.Host) (*visit, error) {
	v := &visit{Installer: i, host: h}
	place := remote.DefaultGenv
	if path.IsAbs(h.GenvPath) {
		place = h.GenvPath
	}
	v.wanted.Path = cmp.Or(i.Options.Path, place)
	v.outcome.Path = v.wanted.Path
	if err := CheckPath(v.wanted.Path); err != nil {
		const next = "correct `genv:` in hosts.yaml, or name the place with --path"
		return v, &remote.Error{Class: remote.Configuration, Err: err, Next: next}
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := v.ask(ctx, asLogin, script{text: loginScript, vars: variables{{"path", v.wanted.Path}}})
	if err != nil {
		return v, err
	}
	v.login = answer.login()
	if err := v.chooseAccount(); err != nil {
		return v, err
	}
	if err := v.becomeRoot(ctx); err != nil {
		return v, err
	}
	if v.state.Sum != "" {
		v.outcome.Before = &Version{Version: v.login.Version, Sum: v.state.Sum}
	}
	return v, nil
}

// chooseAccount is the account for sudoers: none if the login is root.
func (v *visit) chooseAccount() error {
	v.access.direct = v.login.UID == "0"
	v.wanted.Account = v.Options.Account
	if v.wanted.Account == "" && !v.access.direct {
		v.wanted.Account = v.login.User
	}
	v.outcome.Account = v.wanted.Account
	if v.wanted.Account == "" {
		return nil
	}
	if err := text.CheckUsername(v.wanted.Account); err != nil {
		return refuse("name the account with --sudoers-for", "no line of sudoers for the login: %w", err)
	}
	return nil
}

// becomeRoot looks at the host as root: with sudo, and with a password only if sudo wants one.
func (v *visit) becomeRoot(ctx context.Context) error {
	if v.host.NoSudo && !v.access.direct {
		return refuse("log in as root, or remove `sudo: false` for it from hosts.yaml",
			"the login %s is not root, and sudo is not to be used on this host", v.login.User)
	}
	answer, err := v.lookAsRoot(ctx)
	if err != nil && !v.access.direct && len(answer) == 0 && mayBeSudo(err) {
		if v.Password == nil {
			return needsRights(err)
		}
		err = v.Password.try(ctx, v.host.Name, func(secret []byte) error { return v.check(ctx, v.host, secret) })
		if err != nil {
			return err
		}
		v.access.secret = v.Password.secret
		answer, err = v.lookAsRoot(ctx)
	}
	if err != nil {
		return err
	}
	v.state = answer.state()
	return nil
}

// mayBeSudo says whether sudo can be why a command failed before it said anything.
func mayBeSudo(err error) bool {
	class := remote.ClassOf(err)
	return class == remote.Sudo || class == remote.SudoRefused || class == remote.CommandFailed
}

func (v *visit) lookAsRoot(ctx context.Context) (values, error) {
	return v.ask(ctx, v.access, script{text: newHostScript + extrasScript + lookScript, vars: variables{
		{"path", v.wanted.Path},
		{"folder", SudoersFolder},
		{"rules_file", remote.SudoersFile},
		{"shims", shimsOf(v.wanted.Path)},
		{"account", v.wanted.Account},
		{"key", v.Options.Key},
		{"units", unitsFolder},
		{"extras", yes(v.Options.Extras)},
		{"shell_setup", yes(v.Options.ShellSetup)},
		{"again", ""},
	}})
}

// shimsOf is where `make install` puts the shims of a program.
func shimsOf(program string) string {
	return path.Join(path.Dir(path.Dir(program)), "lib", "genv", "shims")
}

// shims is that folder; empty if others than root decide what it is.
func (v *visit) shims() string {
	if unsafe(v.state.ShimFolders) != nil {
		return ""
	}
	return shimsOf(v.wanted.Path)
}

// hasShims says whether the links that the shims are lead to a program: it must be in a folder bin.
func hasShims(program string) bool { return path.Base(path.Dir(program)) == "bin" }

// apply carries out a plan.
func (v *visit) apply(ctx context.Context, plan *Plan) error {
	limit, _ := ctx.Deadline()
	s := script{text: applyScript, vars: variables{
		{"path", v.wanted.Path},
		{"folder", SudoersFolder},
		{"shims", v.shims()},
		{"run", rand.Text()},
		{"rules_file", remote.SudoersFile},
		{"content", plan.Sudoers},
		{"earlier", plan.Earlier},
		{"before", v.state.Sum},
		{"rules_before", v.state.RulesSum},
		{"seconds", strconv.Itoa(int(time.Until(limit).Seconds()) + 1)},
		{"link", yes(plan.Shims)},
		{"account", v.wanted.Account},
		{"key", plan.Key},
	}}
	sum := ""
	if plan.Program {
		sum = v.wanted.Program.Sum
		s.upload = bytes.NewReader(v.wanted.Program.Data)
	}
	s.vars = append(s.vars, [2]string{"program", sum})
	answer, err := v.change(ctx, s)
	if version := answer.one("version"); version != "" {
		v.outcome.Now.Version = version
	}
	return err
}

// changeState gives the state to root, or to all users; empty leaves it to the one that has it, and
// has the service that is there continue with the program.
func (v *visit) changeState(ctx context.Context, to Ownership) error {
	_, err := v.change(ctx, script{text: stateScript, vars: variables{
		{"path", v.wanted.Path},
		{"state", string(to)},
		{"units", unitsFolder},
		{"socket", hostSocket},
		{"service", unitFor(hostService, v.wanted.Path)},
	}})
	return err
}

// addExtras adds what is lacking, and renews what came from the program that was there before.
func (v *visit) addExtras(ctx context.Context, again bool) error {
	_, err := v.change(ctx, script{text: extrasScript + extrasApplyScript, vars: variables{
		{"path", v.wanted.Path},
		{"units", unitsFolder},
		{"enforce", unitFor(enforceService, v.wanted.Path)},
		{"extras", yes(v.Options.Extras)},
		{"shell_setup", yes(v.Options.ShellSetup)},
		{"again", yes(again)},
	}})
	return err
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
