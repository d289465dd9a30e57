// Package install installs, upgrades and removes genv on hosts over SSH: the program, its shims and the sudoers(5)
// lines with which a controller runs it.
//
//	installer := install.Installer{
//		Runner: client, Programs: map[string]*install.Binary{"amd64": program},
//	}
//	results := remote.Each(ctx, hosts, fanout, installer.Install)
//
// It asks the login, then root, what the host has. It sends the program if needed, which does the rest there, as root:
// see package onhost. Finally it runs genv like a controller.
//
// The package prints nothing, asks for no password (see Password), and installs no packages.
package install

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install/onhost"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	defaultTimeout = 10 * time.Minute
	askTimeout     = time.Minute // for a read-only script
)

// Installer installs genv on hosts. It is safe for concurrent use.
type Installer struct {
	Runner   remote.Runner
	Programs map[string]*Binary // by architecture
	// Options say what to install. Path defaults to the host's absolute GenvPath, or remote.DefaultGenv; Account to the
	// login.
	Options  onhost.Options
	Timeout  time.Duration // per host; 0: 10 minutes
	Password *Password     // may be nil
}

type installation struct {
	*Installer
	host    remote.Host
	wanted  onhost.Request
	login   remote.Reported // from the login
	root    remote.Reported // from root
	access  rootAccess
	arch    string
	program *Binary // for the host; nil: none, but an installed one can uninstall itself
	uid     string  // of the account
	outcome *onhost.Outcome
}

// Install installs genv on a host. A lost connection leaves the old or the new one.
func (i *Installer) Install(ctx context.Context, h remote.Host) (*onhost.Outcome, error) {
	return i.on(ctx, h, false)
}

// Uninstall removes the program and its parts. State, logs and the account stay; with Options.Purge just the account.
func (i *Installer) Uninstall(ctx context.Context, h remote.Host) (*onhost.Outcome, error) {
	return i.on(ctx, h, true)
}

func (i *Installer) on(ctx context.Context, h remote.Host, uninstall bool) (*onhost.Outcome, error) {
	limit := cmp.Or(i.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s: %w", limit, remote.ErrLate))
	defer cancel()
	v := &installation{Installer: i, host: h, wanted: onhost.Request{Options: i.Options, Uninstall: uninstall}}
	err := v.look(ctx)
	if err == nil {
		err = v.act(ctx)
	}
	if err == nil && !uninstall && !v.wanted.Check {
		err = v.verify(ctx)
	}
	if err != nil {
		return nil, err
	}
	return v.outcome, nil
}

func (v *installation) look(ctx context.Context) error {
	w := &v.wanted
	if w.Path == "" {
		w.Path = remote.DefaultGenv
		if path.IsAbs(v.host.GenvPath) {
			w.Path = v.host.GenvPath
		}
	}
	w.Known = v.host.GenvPath == w.Path
	if err := onhost.CheckPath(w.Path); err != nil {
		return remote.Errorf(remote.Configuration, "%w", err).
			WithNext("correct `genv:` in hosts.yaml, or name the place with --path")
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var err error
	if v.login, err = v.run(ctx, rootAccess{direct: true}, loginScript, nil, nil); err != nil {
		return err
	}
	v.access.direct = v.login.Last("uid") == "0"
	w.Version = text.Cut(v.login.Last("version"), 80)
	if w.Account == "" && !v.access.direct {
		w.Account = v.login.Last("user")
	}
	if w.Account != "" {
		if err := text.CheckUsername(w.Account); err != nil {
			return onhost.Refuse("name the account with --sudoers-for", "no line of sudoers for the login: %w", err)
		}
	}
	system, machine := v.login.Last("system"), v.login.Last("machine")
	if v.arch = architecture[machine]; system != "Linux" || v.arch == "" {
		return onhost.Refuse("genv runs on Linux on amd64 and arm64", "the host is %s on %s", system, machine)
	}
	if v.program = v.Programs[v.arch]; v.program != nil {
		w.Sum = v.program.Sum
	}
	return v.becomeRoot(ctx)
}

func (v *installation) noProgram() error {
	return onhost.Refuse(fmt.Sprintf("name a genv for it with --binary-%s FILE", v.arch),
		"the host is %s, and this genv is for %s", v.arch, strings.Join(slices.Sorted(maps.Keys(v.Programs)), ", "))
}

// becomeRoot looks at the host through sudo, with a password only if needed.
func (v *installation) becomeRoot(ctx context.Context) error {
	if v.host.NoSudo && !v.access.direct {
		return onhost.Refuse("log in as root, or remove `sudo: false` for it from hosts.yaml",
			"the login %s is not root, and sudo is not to be used on this host", v.login.Last("user"))
	}
	var err error
	v.root, err = v.run(ctx, v.access, rootScript, nil, nil)
	if err != nil && !v.access.direct && len(v.root) == 0 && mayBeSudo(err) {
		if v.Password == nil {
			return needsRights(err)
		}
		err = v.Password.try(ctx, v.host.Name, func(secret []byte) error { return v.check(ctx, v.host, secret) })
		if err != nil {
			return err
		}
		v.access.secret = v.Password.secret
		v.root, err = v.run(ctx, v.access, rootScript, nil, nil)
	}
	return err
}

func mayBeSudo(err error) bool {
	class := remote.ClassOf(err)
	return class == remote.Sudo || class == remote.SudoRefused || class == remote.CommandFailed
}

// act runs the installed program, or one that it sends.
func (v *installation) act(ctx context.Context) error {
	limit, _ := ctx.Deadline()
	seconds := strconv.Itoa(int(time.Until(limit).Seconds()) + 1)
	vars, upload := map[string]string{"seconds": seconds, "here": "", "plan": ""}, io.Reader(nil)
	if v.wanted.Check {
		vars["plan"] = "--plan"
	}
	switch here := v.root["here"] != nil; {
	case v.program == nil && !(here && v.wanted.Uninstall):
		return v.noProgram()
	case here:
		vars["here"] = "yes"
	case v.root["sha256sum"] == nil:
		return onhost.Refuse("install sha256sum there (the package coreutils has it)", "there is no sha256sum on the host")
	case v.root["gzip"] == nil:
		vars["unpack"], vars["sent"], upload = "cat", v.program.Sum, bytes.NewReader(v.program.Data)
	default:
		data, sum := v.program.compressed()
		vars["unpack"], vars["sent"], upload = "gzip -dc", sum, bytes.NewReader(data)
	}
	if upload != nil { // KiB for it, and twice for the program
		vars["room"] = strconv.Itoa(3 * len(v.program.Data) >> 10)
	}
	answer, err := v.run(ctx, v.access, actScript, upload, vars)
	if failed := answer.Last("failed"); failed != "" {
		return onhost.Failure(failed, v.wanted.Path, answer.Last("why"))
	}
	var a onhost.Answer
	switch line := strings.Join(answer["answer"], ""); {
	case json.Unmarshal([]byte(line), &a) == nil:
		return v.learn(&a)
	case v.program == nil && mayBeSudo(err): // the installed genv may be too old
		return v.noProgram()
	}
	return interrupted(err, answer)
}

// learn accepts a host's report, made safe for a terminal.
func (v *installation) learn(a *onhost.Answer) error {
	const longest = 4096 // bytes
	shown := func(s string) string {
		return text.Cut(text.OneLine(string(hidden([]byte(s), v.access.secret))), longest)
	}
	if f := a.Failure; f != nil {
		class := remote.CommandFailed
		if f.Class == remote.InstallRefused {
			class = f.Class
		}
		return remote.Errorf(class, "%s", shown(f.Error)).WithNext(shown(f.NextStep))
	}
	o := a.Outcome
	results := []string{onhost.Unchanged, onhost.Installed, onhost.Upgraded, onhost.Repaired, onhost.Uninstalled}
	if o == nil || !slices.Contains(results, o.Result) || o.Now == nil && !v.wanted.Uninstall {
		return errIncomplete
	}
	v.uid, v.outcome = shown(a.AccountUID), o
	o.Arch, o.Path, o.Account = v.arch, v.wanted.Path, v.wanted.Account
	for _, version := range []*onhost.Version{o.Before, o.Now} {
		if version != nil {
			version.Version, version.Sum = text.Cut(shown(version.Version), 80), text.Cut(shown(version.Sum), 64)
		}
	}
	o.Notes = o.Notes[:min(len(o.Notes), 100)]
	for n, note := range o.Notes {
		o.Notes[n] = shown(note)
	}
	return nil
}

// Binary is a genv for one architecture.
type Binary struct {
	Data []byte
	Sum  string // SHA-256, hexadecimal
	Arch string // in Go's terms

	once    sync.Once
	gzip    []byte // see compressed
	gzipSum string
}

// compressed is the gzipped program, of under half the size, and its checksum, made once for all hosts.
func (b *Binary) compressed() (data []byte, sum string) {
	b.once.Do(func() {
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // a valid level
		_, _ = w.Write(b.Data)                               // never fails
		_ = w.Close()
		b.gzip, b.gzipSum = packed.Bytes(), onhost.Checksum(packed.Bytes())
	})
	return b.gzip, b.gzipSum
}

// architecture is keyed by the machine of uname(1), or the number in an ELF header.
var architecture = map[string]string{
	"x86_64": "amd64", "amd64": "amd64", "62": "amd64", "aarch64": "arm64", "arm64": "arm64", "183": "arm64",
}

// NewProgram checks that data is a genv for Linux.
func NewProgram(data []byte) (*Binary, error) {
	const (
		maxProgram  = 256 << 20 // bytes, like the header
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
	p := &Binary{Data: data, Sum: onhost.Checksum(data), Arch: architecture[strconv.Itoa(int(number))]}
	switch {
	case p.Arch == "":
		return nil, fmt.Errorf("it is for the machine %d, which is neither amd64 nor arm64", number)
	case !bytes.Contains(data, mainPackage()):
		return nil, errors.New("it is not genv")
	case !bytes.Contains(data, []byte("genv/remote/install/onhost.(*Host).Serve")):
		return nil, errors.New("it is an earlier genv; to install that, run its own `genv remote install`")
	}
	return p, nil
}

// mainPackage names genv's main package. As one literal, it would be in every program that links this package.
func mainPackage() []byte {
	return []byte("path\tgithub.com/" + strings.Join([]string{"seed-3119e985", "genv", "cmd", "genv"}, "/") + "\n")
}
