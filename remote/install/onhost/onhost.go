// Package onhost installs, upgrades and removes genv on the machine on which it runs, as root. The program that runs it
// is what is installed, or is there already: `genv host install`, which a controller's machine starts over SSH.
//
//	h := onhost.Host{Program: "/proc/self/exe", Out: os.Stdout, Getenv: os.Getenv, Run: (*exec.Cmd).Run}
//	err := h.Serve(ctx, os.Stdin, plan) // reads a Request, and writes an Answer
//
// It surveys the host and decides; Decide is pure. Then it writes everything under temporary names in the folders where
// it belongs, checks it (checksum, a run of the program, visudo), and renames it. So a host always has the old program
// or the new one, and valid sudoers. The next run removes what an interrupted one leaves behind.
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

// Options are what is installed, and how.
type Options struct {
	Path    string // that of the program
	Account string // may run genv by sudoers; empty for none
	Key     string // with which a controller logs in as the account, which is made if missing; empty for none
	Check   bool   // changes nothing: the outcome is what would be done
	Upgrade bool   // replaces another genv at Path
	State   string // who is to own the state, StateRoot or StateShared; empty lets root own that of a new host
	// Extras are man pages, completion, the unit of genv-enforce and a link in /usr/bin; ShellSetup also puts genv into
	// all users' shells.
	Extras, ShellSetup bool
	Purge              bool // has an uninstallation remove state and logs, too
}

// Request is what a controller's machine asks for.
type Request struct {
	Options
	Token     string // precedes each line of the report
	Uninstall bool
	Sum       string // the SHA-256 of the program that is to run; empty for any
	Version   string // of the genv at the path, as it says to the login; empty if it is missing or doesn't run
	Known     bool   // the controller knows the path, and need not find it by the name of genv
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
	AccountUID string          // of the account; empty if it doesn't exist
	Failure    *remote.Failure // instead of the outcome
}

// Host is the machine.
type Host struct {
	Program string    // the one that runs, which is installed
	Out     io.Writer // gets the report
	Getenv  func(string) string
	Root    string // precedes all paths; empty for none
	Run     func(*exec.Cmd) error
}

// installation is one on a host.
type installation struct {
	*Host
	*Request
	accounts nss.Passwd
	found    *Survey
	outcome  *Outcome
	made     string // says that the account was made
}

// Serve reads a Request and carries it out. It writes the report, of lines that begin with the token: the steps, and
// the Answer.
func (h *Host) Serve(ctx context.Context, in io.Reader, plan bool) error {
	const maxRequest = 64 << 10 // bytes
	var r Request
	if err := json.NewDecoder(io.LimitReader(in, maxRequest)).Decode(&r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	r.Check = plan
	signal.Ignore(syscall.SIGPIPE) // a lost connection is an error of step
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

// step reports a step that is done. Its error says that no one waits for the rest.
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

// lock lets one installation at a time change the host. Root alone can open the file: any user can open a folder and
// lock it. A full or read-only /run is no reason to keep genv.
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

// fileSum is the checksum of a file; empty if there is none, "?" if it can't be read or isn't regular.
func fileSum(path string) string {
	const maxProgram = 256 << 20 // bytes
	data, err := folder.ReadRegular(path, maxProgram)
	switch {
	case os.IsNotExist(err):
		return ""
	case err != nil:
		return "?"
	}
	return sumOf(data)
}

func sumOf[T string | []byte](data T) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}

// folders are where programs are found, after those of sudo's own path.
const folders = ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// find is the path of a program in a list of folders; empty for none.
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

// run runs a program, and returns what it wrote to stdout. The error has what it said.
func (h *Host) run(ctx context.Context, name string, args ...string) (string, error) {
	out, _, err := h.runAs(ctx, nil, "", name, args...)
	return out, err
}

// runAs is run with a text on stdin, as the account if there is one, in its home. said is the end of both outputs.
func (h *Host) runAs(
	ctx context.Context, as *nss.Account, stdin, name string, args ...string,
) (stdout, said string, err error) {
	within := 90 * time.Second
	if as != nil { // it can make its home slow
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
