// Package onhost installs, upgrades and removes genv on its own machine, as root. It installs itself: `genv host
// install`, which a controller's machine starts over SSH.
//
//	h := onhost.Host{Program: "/proc/self/exe", Out: os.Stdout, Getenv: os.Getenv, Run: (*exec.Cmd).Run}
//	err := h.Serve(ctx, os.Stdin, plan) // reads a Request, and writes an Answer
//
// It surveys the host and decides (Decide is pure). It writes all files under temporary names, checks them (checksum, a
// test run, visudo), and renames them. So a host always has a whole program and valid sudoers. The next run cleans up
// after an interrupted one.
package onhost

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Options say what to install, and how.
type Options struct {
	Path    string // of the program
	Account string // may run genv by sudoers; empty: none
	Key     string // lets a controller log in as the account, which is created if missing; empty: none
	Check   bool   // change nothing: the outcome is what would be done
	Upgrade bool   // replace another genv at Path
	State   string // StateRoot or StateShared; empty: root for a new host
	// Extras are man pages, completion, the unit of genv-enforce and a link in /usr/bin. ShellSetup also adds genv to
	// all users' shells.
	Extras, ShellSetup bool
	Purge              bool // an uninstallation also removes state and logs
}

// Request is what a controller's machine asks for.
type Request struct {
	Options
	Token     string // starts each line of the report
	Uninstall bool
	Sum       string // SHA-256 of the running program; empty: any
	Version   string // that the login saw at the path; empty if missing or broken
	Known     bool   // the controller knows the path, so sudo need not find genv by name
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

// Answer is the last line of a report.
type Answer struct {
	Outcome    *Outcome
	AccountUID string          // empty if the account doesn't exist
	Failure    *remote.Failure // instead of the outcome
}

// Host is the machine.
type Host struct {
	Program string    // the running one, to be installed
	Out     io.Writer // gets the report
	Getenv  func(string) string
	Root    string // prefix of all paths; may be empty
	Run     func(*exec.Cmd) error
}

type installation struct {
	*Host
	*Request
	accounts nss.Passwd
	found    *Survey
	outcome  *Outcome
	made     string // says that the account was created
}

// Serve reads a Request and carries it out. Each line of its report starts with the token: the steps, then the Answer.
func (h *Host) Serve(ctx context.Context, in io.Reader, plan bool) error {
	const maxRequest = 64 << 10 // bytes
	var r Request
	if err := json.NewDecoder(io.LimitReader(in, maxRequest)).Decode(&r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	r.Check = plan
	signal.Ignore(syscall.SIGPIPE) // makes a lost connection an error of step
	unix.Umask(0o022)
	i := &installation{Host: h, Request: &r, accounts: nss.Passwd{File: h.at("/etc/passwd")}, found: &Survey{}}
	answer := Answer{}
	if err := i.do(ctx); err == nil {
		answer.Outcome = i.outcome
	} else {
		answer.Failure = new(remote.FailureOf("", err))
	}
	answer.AccountUID = i.found.AccountUID
	line, err := json.Marshal(answer)
	return cmp.Or(err, i.report("answer", string(line)))
}

func (i *installation) report(key, value string) error {
	_, err := fmt.Fprintf(i.Out, "%s %s %s\n", i.Token, key, value)
	return err
}

// step reports a completed step. After an error no one waits for the rest.
func (i *installation) step(ctx context.Context, name string) error {
	return cmp.Or(context.Cause(ctx), i.report("step", name))
}

func (i *installation) do(ctx context.Context) error {
	if sum := fileSum(i.Program); i.Sum != "" && sum != i.Sum {
		return i.failure("changed", fmt.Errorf("the program that runs has the checksum %s", sum))
	}
	if !i.Check {
		run, err := i.lock()
		if err != nil {
			return err
		}
		defer run.Close()
	}
	i.found = i.look(ctx)
	if i.Uninstall {
		return i.uninstall(ctx)
	}
	return i.install(ctx)
}

// lock allows one installation at a time. Only root can open the file; any user can lock a folder. A full or read-only
// /run doesn't prevent uninstalling.
func (i *installation) lock() (run *folder.Folder, err error) {
	if run, err = folder.OpenTrusted(i.at("/run")); err == nil {
		err = run.Hold("genv-install.lock", time.Minute)
	}
	switch {
	case errors.Is(err, folder.ErrLocked):
		return run.OrClose(i.failure("busy", err))
	case i.Uninstall:
		return run, nil
	}
	return run.OrClose(i.failure("write", err))
}

func (o *Outcome) note(format string, args ...any) {
	o.Notes = append(o.Notes, fmt.Sprintf(format, args...))
}

func (h *Host) at(path string) string { return filepath.Join(h.Root, path) }

// fileSum returns the checksum of a file; empty if missing, "?" if unreadable or not regular.
func fileSum(path string) string {
	const maxProgram = 256 << 20 // bytes
	data, err := folder.ReadRegular(path, maxProgram)
	switch {
	case os.IsNotExist(err):
		return ""
	case err != nil:
		return "?"
	}
	return Checksum(data)
}

// Checksum is the SHA-256 in hexadecimal.
func Checksum[T string | []byte](data T) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}

// folders follow sudo's own path.
const folders = ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (h *Host) find(name, folders string) string {
	for _, dir := range filepath.SplitList(folders) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(h.at(path))
		if filepath.IsAbs(path) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

func (h *Host) run(ctx context.Context, name string, args ...string) (string, error) {
	out, _, err := h.runAs(ctx, nil, "", name, args...)
	return out, err
}

// runAs is run with stdin, as the account (if any) in its home. said is the end of both outputs.
func (h *Host) runAs(
	ctx context.Context, as *nss.Account, stdin, name string, args ...string,
) (stdout, said string, err error) {
	within := 90 * time.Second
	if as != nil { // its home may be slow on purpose
		within = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	path := h.Getenv("PATH") + folders
	if !filepath.IsAbs(name) {
		name = cmp.Or(h.find(name, path), name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PATH="+path)
	if as != nil {
		cmd.Dir, cmd.Env = as.Home, []string{"PATH=" + path, "HOME=" + as.Home}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(as.UID), Gid: as.GID}}
	}
	both, out := &text.Tail{Limit: 1000}, &text.Head{Limit: 1 << 20}
	cmd.Stdin, cmd.Stderr, cmd.Stdout = strings.NewReader(stdin), both, io.MultiWriter(out, both)
	err = h.Run(cmd)
	said = text.OneLine(both.String())
	switch {
	case ctx.Err() != nil:
		err = text.Late(context.Cause(ctx), within)
	case err == nil && out.Cut:
		err = errors.New("it writes too much")
	case err != nil && said != "":
		err = errors.New(said)
	}
	return out.String(), said, err
}
