// Package install installs, upgrades and removes genv on hosts: the program, its shims and the lines of sudoers(5) with
// which a controller runs it.
//
//	installer := install.Installer{
//		Runner: client, Programs: map[string]*install.Binary{"amd64": program},
//	}
//	results := remote.Each(ctx, hosts, fanout, installer.Install)
//
// It looks at each host, as the login and then as root, and decides; Decide is pure. One script that root runs there,
// with the program on its stdin, makes the change: it writes everything under temporary names in the folders where it
// belongs, checks it (checksum, a run of the program, visudo), and renames it. So a host always has the old program or
// the new one, and valid sudoers. The next run removes what an interrupted one leaves behind.
//
// The package prints nothing, asks for no password (see Password), and installs no packages.
package install

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Options are what is installed, and how.
type Options struct {
	Path    string // that of the program; empty is the host's absolute GenvPath, or else remote.DefaultGenv
	Account string // may run genv by sudoers; empty is the login
	Key     string // with which a controller logs in as the account, which is made if missing; empty for none
	Check   bool   // changes nothing: the outcome is what would be done
	Upgrade bool   // replaces another genv at Path
	State   string // who is to own the state, StateRoot or StateShared; empty lets root own that of a new host
	// Extras are man pages, completion, the unit of genv-enforce and a link in /usr/bin; ShellSetup also puts genv into
	// all users' shells.
	Extras, ShellSetup bool
	Purge              bool          // has Uninstall remove state and logs, too
	Timeout            time.Duration // for everything on a host; 0 is 10 minutes
}

const (
	defaultTimeout = 10 * time.Minute
	askTimeout     = time.Minute // for a script without an upload
)

// Installer installs genv on hosts. It is safe for concurrent use.
type Installer struct {
	Runner   remote.Runner
	Programs map[string]*Binary // by architecture
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
	Arch   string   `json:"arch"`
	Path   string   `json:"path"`   // of genv there
	Before *Version `json:"before"` // the genv there before it
	Now    *Version `json:"now"`    // the genv after it
	// Result is unchanged, installed, upgraded, repaired or uninstalled; with --check: what would be done.
	Result  string   `json:"result"`
	Account string   `json:"sudoers_for,omitzero"` // an account
	Sudoers bool     `json:"sudoers_changed"`      // written, or removed
	Shims   bool     `json:"shims_changed"`        // linked, or removed
	Notes   []string `json:"notes"`                // what else the administrator should know
}

type installation struct {
	*Installer
	host    remote.Host
	wanted  Options // with Path, and with Account unless root logs in
	login   values  // reported without root
	access  rootAccess
	found   *Survey
	outcome Outcome
}

// Install installs genv on a host. If the connection is lost, the host has the old genv or the new one.
func (i *Installer) Install(ctx context.Context, h remote.Host) (*Outcome, error) {
	return i.on(ctx, h, func(ctx context.Context, v *installation) error {
		plan, err := v.plan()
		if err != nil || v.wanted.Check {
			return err
		}
		if plan.files() || plan.Clean {
			err = v.apply(ctx, plan)
		}
		if err == nil && (plan.State != "" || plan.Units) {
			err = v.changeState(ctx, plan.State)
		}
		if err == nil && plan.Extras { // an earlier program's are renewed
			_, err = v.change(ctx, extrasScript+extrasApplyScript, nil, map[string]string{
				"enforce": unitFor(enforceService, v.wanted.Path), "again": yes(plan.Program != nil),
			})
		}
		if err == nil {
			err = v.verify(ctx)
		}
		return err
	})
}

// on does something on a host after a look at it.
func (i *Installer) on(ctx context.Context, h remote.Host, do func(context.Context, *installation) error) (
	*Outcome, error,
) {
	limit := cmp.Or(i.Options.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s: %w", limit, remote.ErrLate))
	defer cancel()
	v := &installation{Installer: i, host: h, wanted: i.Options}
	err := v.look(ctx)
	if err == nil {
		err = do(ctx, v)
	}
	if err != nil {
		return nil, err
	}
	return &v.outcome, nil
}

func (v *installation) plan() (*Plan, error) {
	system, machine := v.login.one("system"), v.login.one("machine")
	arch := architecture[machine]
	program := v.Programs[arch]
	switch {
	case system != "Linux" || arch == "":
		return nil, refuse("genv runs on Linux on amd64 and arm64", "the host is %s on %s", system, machine)
	case program == nil:
		return nil, refuse(fmt.Sprintf("name a genv for it with --binary-%s FILE", arch),
			"the host is %s, and this genv is for %s", arch, strings.Join(slices.Sorted(maps.Keys(v.Programs)), ", "))
	}
	plan, err := Decide(&v.wanted, program, v.found)
	if err != nil {
		return nil, err
	}
	v.outcome.Arch, v.outcome.Result, v.outcome.Notes = arch, plan.Result, plan.Notes
	v.outcome.Sudoers, v.outcome.Shims = plan.Sudoers != "", plan.Shims
	v.outcome.Now = &Version{Sum: program.Sum}
	if plan.Program == nil {
		v.outcome.Now.Version = v.found.Version
	}
	return plan, nil
}

func (v *installation) look(ctx context.Context) error {
	if v.wanted.Path == "" {
		v.wanted.Path = remote.DefaultGenv
		if path.IsAbs(v.host.GenvPath) {
			v.wanted.Path = v.host.GenvPath
		}
	}
	v.outcome.Path = v.wanted.Path
	if err := CheckPath(v.wanted.Path); err != nil {
		return remote.Errorf(remote.Configuration, "%w", err).
			WithNext("correct `genv:` in hosts.yaml, or name the place with --path")
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var err error
	if v.login, err = v.ask(ctx, rootAccess{direct: true}, loginScript); err != nil {
		return err
	}
	v.access.direct = v.login.one("uid") == "0"
	if v.wanted.Account == "" && !v.access.direct {
		v.wanted.Account = v.login.one("user")
	}
	v.outcome.Account = v.wanted.Account
	if v.wanted.Account != "" {
		if err := text.CheckUsername(v.wanted.Account); err != nil {
			return refuse("name the account with --sudoers-for", "no line of sudoers for the login: %w", err)
		}
	}
	if err := v.becomeRoot(ctx); err != nil {
		return err
	}
	if v.found.Sum != "" {
		v.outcome.Before = &Version{Version: v.found.Version, Sum: v.found.Sum}
	}
	return nil
}

// becomeRoot looks at the host as root, by sudo, with a password only if sudo wants one.
func (v *installation) becomeRoot(ctx context.Context) error {
	if v.host.NoSudo && !v.access.direct {
		return refuse("log in as root, or remove `sudo: false` for it from hosts.yaml",
			"the login %s is not root, and sudo is not to be used on this host", v.login.one("user"))
	}
	answer, err := v.ask(ctx, v.access, lookScripts)
	if err != nil && !v.access.direct && len(answer) == 0 && mayBeSudo(err) {
		if v.Password == nil {
			return needsRights(err)
		}
		err = v.Password.try(ctx, v.host.Name, func(secret []byte) error { return v.check(ctx, v.host, secret) })
		if err != nil {
			return err
		}
		v.access.secret = v.Password.secret
		answer, err = v.ask(ctx, v.access, lookScripts)
	}
	if err == nil {
		v.found = answer.survey(text.Cut(v.login.one("version"), 80))
	}
	return err
}

func mayBeSudo(err error) bool {
	class := remote.ClassOf(err)
	return class == remote.Sudo || class == remote.SudoRefused || class == remote.CommandFailed
}

// variables are those of each script; a script may get others in addition, or in their place.
func (v *installation) variables() map[string]string {
	return map[string]string{
		"path":        v.wanted.Path,
		"folder":      SudoersFolder,
		"rules_file":  remote.SudoersFile,
		"shims":       v.shims(),
		"account":     v.wanted.Account,
		"key":         v.wanted.Key,
		"units":       "/etc/systemd/system",
		"extras":      yes(v.wanted.Extras),
		"shell_setup": yes(v.wanted.ShellSetup),
		"again":       "",
	}
}

// shims is the folder where `make install` puts them for a program; empty if others than root may change it.
func (v *installation) shims() string {
	if v.found != nil && unsafe(v.found.ShimFolders) != nil {
		return ""
	}
	return path.Join(path.Dir(path.Dir(v.wanted.Path)), "lib", "genv", "shims")
}

// hasShims says whether the shims' links lead to a program: it must be in a folder bin.
func hasShims(program string) bool { return path.Base(path.Dir(program)) == "bin" }

func (v *installation) apply(ctx context.Context, plan *Plan) error {
	limit, _ := ctx.Deadline()
	var upload io.Reader
	sum := ""
	if plan.Program != nil {
		sum, upload = plan.Program.Sum, bytes.NewReader(plan.Program.Data)
	}
	answer, err := v.change(ctx, applyScript, upload, map[string]string{
		"run":          rand.Text(),
		"content":      plan.Sudoers,
		"earlier":      plan.Earlier,
		"before":       v.found.Sum,
		"rules_before": v.found.RulesSum,
		"seconds":      strconv.Itoa(int(time.Until(limit).Seconds()) + 1),
		"link":         yes(plan.Shims),
		"key":          plan.Key,
		"program":      sum,
	})
	if version := answer.one("version"); version != "" {
		v.outcome.Now.Version = version
	}
	return err
}

// changeState gives the state to root or to all users; empty restarts the service, if any, with the program.
func (v *installation) changeState(ctx context.Context, to string) error {
	_, err := v.change(ctx, stateScript, nil, map[string]string{
		"state": to, "socket": hostSocket, "service": unitFor(hostService, v.wanted.Path),
	})
	return err
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// Binary is a genv for one architecture.
type Binary struct {
	Data []byte
	Sum  string // SHA-256, in hexadecimal
	Arch string // as Go names it
}

// architecture is that of a machine's uname(1), or of the number in an ELF header.
var architecture = map[string]string{
	"x86_64": "amd64", "amd64": "amd64", "62": "amd64", "aarch64": "arm64", "arm64": "arm64", "183": "arm64",
}

// NewProgram checks that data is a genv for Linux.
func NewProgram(data []byte) (*Binary, error) {
	const (
		maxProgram  = 256 << 20 // bytes, as the header
		header      = 64
		elf64Little = "\x7fELF\x02\x01"
	)
	switch {
	case len(data) > maxProgram:
		return nil, fmt.Errorf("%d bytes are too many for genv", len(data))
	case len(data) < header || !strings.HasPrefix(string(data[:16]), elf64Little):
		return nil, errors.New("it is not a program for 64-bit Linux")
	}
	number := binary.LittleEndian.Uint16(data[18:])
	p := &Binary{Data: data, Arch: architecture[strconv.Itoa(int(number))]}
	switch {
	case p.Arch == "":
		return nil, fmt.Errorf("it is for the machine %d, which is neither amd64 nor arm64", number)
	case !bytes.Contains(data, mainPackage()):
		return nil, errors.New("it is not genv")
	}
	p.Sum = sumOf(string(data))
	return p, nil
}

func sumOf(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}

// mainPackage is how genv names its package main in itself. In one piece, the name would be in every program that links
// this package.
func mainPackage() []byte {
	return []byte("path\tgithub.com/" + strings.Join([]string{"seed-3119e985", "genv", "cmd", "genv"}, "/") + "\n")
}
