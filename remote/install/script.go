package install

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed" // the scripts
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// POSIX shell scripts for the host.
var (
	//go:embed scripts/common.sh
	commonScript string
	//go:embed scripts/login.sh
	loginScript string
	//go:embed scripts/root.sh
	rootScript string
	//go:embed scripts/act.sh
	actScript string
)

// receive is a shell program that reads the script from stdin, between two lines with the token, and runs it with the
// rest. It drops what precedes the first token: the password, if sudo needs none. Without the second token nothing
// runs. So scripts have any length, suit any login shell, and aren't in the process list. The text has nothing that csh
// or fish interpret within single quotes.
func receive(token string) string {
	return strings.ReplaceAll(`l=; until [ "$l" = TOKEN ]; do IFS= read -r l || exit 90; done; `+
		`n=$(printf "\nx"); n=${n%x}; s=; l=; `+
		`until [ "$l" = TOKEN ]; do s="$s$l$n"; IFS= read -r l || exit 90; done; unset l; eval "$s"`, "TOKEN", token)
}

type rootAccess struct {
	direct bool   // the login is root
	secret []byte // sudo's password; nil for none
}

// asRoot runs an sh program as root. The accepted password is stdin's first line. sudo gets it there only if it doesn't
// remember passwords, as sudo-rs reads more than a line; then the program's input follows.
func (a rootAccess) asRoot(program string) []string {
	switch {
	case a.direct:
		return []string{"sh", "-c", program}
	case a.secret == nil:
		return []string{"sh", "-c", `LC_ALL=C; export LC_ALL; exec sudo -n sh -c "$1"`, "sh", program}
	}
	return []string{"sh", "-c", `LC_ALL=C; export LC_ALL; IFS= read -r p; v() { printf "%s\n" "$p"; }; ` +
		`if v | sudo -S -p "" -v >/dev/null 2>&1 && sudo -n true </dev/null >/dev/null 2>&1; ` +
		`then unset p; sudo -n sh -c "$1"; s=$?; sudo -k; exit $s; fi; ` +
		`{ v; unset p; cat; } | sudo -k -S -p "" sh -c "$1"`, "sh", program}
}

// input is a script's stdin up to its end, with variables.
func (a rootAccess) input(token, script string, vars map[string]string) []byte {
	var b strings.Builder
	b.WriteString(token + "\ntoken=" + token + "\n")
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		b.WriteString(name + "=" + remote.Quote(vars[name]) + "\n")
	}
	b.WriteString(commonScript + script + token + "\n")
	if a.secret == nil {
		return []byte(b.String())
	}
	input := make([]byte, 0, len(a.secret)+1+b.Len()) // appending would leave copies of the secret
	input = append(append(input, a.secret...), '\n')
	return append(input, b.String()...)
}

var errIncomplete = remote.Errorf(remote.InvalidOutput, "the host's answer is not complete")

// run runs a script, with an optional upload on stdin, and returns its report.
func (v *installation) run(
	ctx context.Context, a rootAccess, script string, upload io.Reader, vars map[string]string,
) (remote.Reported, error) {
	token := rand.Text()
	v.wanted.Token = token
	wanted := v.wanted
	if wanted.Uninstall {
		wanted.Account = v.Options.Account // it is kept unless named
	}
	request, err := json.Marshal(wanted)
	if err != nil {
		return nil, err
	}
	all := map[string]string{"path": v.wanted.Path, "sum": v.wanted.Sum, "request": string(request)}
	maps.Copy(all, vars)
	input := a.input(token, script, all)
	defer clear(input)
	out, err := v.Runner.Run(ctx, v.host, remote.Command{Args: a.asRoot(receive(token)), Stdin: input, Upload: upload})
	said := hidden(out.Stdout, a.secret)
	reported, ended := remote.ParseReported(said, token)
	if _, answer, found := bytes.Cut(said, []byte(token+" answer ")); found { // longer than other reports
		answer, _, _ = bytes.Cut(answer, []byte("\n"))
		reported["answer"] = []string{string(answer)}
	}
	if err == nil && !ended {
		err = errIncomplete
	}
	return reported, withoutSecret(err, a.secret)
}

func interrupted(err error, r remote.Reported) error {
	e, ok := errors.AsType[*remote.Error](err)
	if !ok {
		return err
	}
	last := "before it began"
	if step := r.Last("step"); step != "" {
		last = "after the step " + text.Cut(step, 80)
	}
	return &remote.Error{
		Class: e.Class, Stderr: e.Stderr, Err: fmt.Errorf("the installation was interrupted %s: %w", last, err),
		Next: "run it again: the host has the old genv or the new one, and nothing half done",
	}
}

// check gives sudo the password once, and nothing more that sudo could take as a second try.
func (i *Installer) check(ctx context.Context, h remote.Host, secret []byte) error {
	const mark = "genv-password-accepted"
	input := append(append(make([]byte, 0, len(secret)+1), secret...), '\n')
	defer clear(input)
	const try = `LC_ALL=C; export LC_ALL; exec sudo -k -S -p "" sh -c "$1"` // -k: ignore an earlier password
	args := []string{"sh", "-c", try, "sh", "echo; echo " + mark}
	out, err := i.Runner.Run(ctx, h, remote.Command{Args: args, Stdin: input})
	err = withoutSecret(err, secret)
	if bytes.Contains(append([]byte("\n"), out.Stdout...), []byte("\n"+mark+"\n")) {
		return nil
	}
	switch said, class := string(out.Stderr), remote.ClassOf(err); {
	case err == nil:
		return remote.Errorf(remote.InvalidOutput, "sudo did not run a command, and did not say why")
	case strings.Contains(said, "incorrect password attempt"), strings.Contains(said, "Sorry, try again"),
		class == remote.CommandFailed:
		return remote.Errorf(remote.Sudo, "%w: %w", errPasswordRefused, err).
			WithNext("run it again with the right password; it was given to no other host")
	case class == remote.Sudo, class == remote.SudoRefused:
		return needsRights(err)
	}
	return err
}

func needsRights(err error) error {
	e, ok := errors.AsType[*remote.Error](err)
	if !ok {
		return err
	}
	return &remote.Error{
		Class: e.Class, Stderr: e.Stderr,
		Err: fmt.Errorf("to install, the login must be allowed to run any command as root: %w", e.Err),
		Next: "log in as root or as an account with all rights (-l USER), or give its password with " +
			"--ask-sudo-password; `ssh HOST sudo -l` shows what is allowed",
	}
}

// Password is sudo's for all hosts. A wrong one must lock no account: until a host accepts it, one host at a time tries
// it, and none after a refusal.
type Password struct {
	secret []byte
	turn   chan struct{} // has a value while no host tries; taking it guards the following fields
	// accepted by some host; refused by this one.
	accepted bool
	refused  string
}

// NewPassword takes ownership of a one-line password.
func NewPassword(secret []byte) (*Password, error) {
	if len(secret) == 0 || bytes.ContainsAny(secret, "\n\r\x00") {
		return nil, errors.New("the password is empty, or has a character that sudo doesn't take")
	}
	p := &Password{secret: secret, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p, nil
}

// Wipe overwrites the password.
func (p *Password) Wipe() { clear(p.secret) }

// try tests the password on a host. Only errPasswordRefused means that it is wrong.
func (p *Password) try(ctx context.Context, host string, check func([]byte) error) error {
	select {
	case <-p.turn:
	case <-ctx.Done():
		return remote.Errorf(remote.Cancelled, "while another host was asked whether the password is right: %w",
			context.Cause(ctx))
	}
	defer func() { p.turn <- struct{}{} }()
	if p.refused != "" {
		return remote.Errorf(remote.Cancelled, "not tried: %s refused the password", p.refused).
			WithNext("run it again with the right password, for hosts that have the same one")
	}
	atOnce := p.accepted // with other hosts
	if atOnce {
		p.turn <- struct{}{}
	}
	err := check(p.secret)
	if atOnce {
		<-p.turn
	}
	if errors.Is(err, errPasswordRefused) {
		p.refused = host
	}
	p.accepted = p.accepted || err == nil
	return err
}

var errPasswordRefused = errors.New("sudo refused the password")

// withoutSecret hides the password, as a host may repeat what it received.
func withoutSecret(err error, secret []byte) error {
	e, ok := errors.AsType[*remote.Error](err)
	if !ok || len(secret) == 0 {
		return err
	}
	message, stderr := string(hidden([]byte(err.Error()), secret)), string(hidden([]byte(e.Stderr), secret))
	if message == err.Error() && stderr == e.Stderr {
		return err
	}
	return &remote.Error{Class: e.Class, Err: errors.New(message), Stderr: stderr, Next: e.Next}
}

func hidden(said, secret []byte) []byte {
	if len(secret) == 0 {
		return said
	}
	return bytes.ReplaceAll(said, secret, []byte("********"))
}
