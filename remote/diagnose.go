package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

const diagnoseTimeout = 5 * time.Second

// Diagnose finds out why sudo did not run genv on a host, by trying it there: sudo's texts differ. The result is err
// with the right class, and a next step that names the path of genv there; or err itself if the cause isn't found.
func Diagnose(ctx context.Context, runner Runner, host Host, err error) error {
	known, ok := errors.AsType[*Error](err)
	if runner == nil || !ok || known.Next != "" ||
		known.Class != Sudo && known.Class != SudoRefused && known.Class != GenvMissing &&
			(known.Class != CommandFailed || host.NoSudo) {
		return err
	}
	if host.Personal && (known.Class == Sudo || known.Class == SudoRefused) {
		return &Error{Class: known.Class, Err: err, Stderr: known.Stderr, Next: PersonalStep}
	}
	ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
	defer cancel()
	mode := "sudo"
	if host.NoSudo {
		mode = "login"
	}
	out, failed := runner.Run(ctx, host, TrialCommand(host, mode, diagnosisMark))
	if class := ClassOf(failed); class == GenvMissing || class == CommandFailed && known.Class == CommandFailed &&
		known.Stderr == "" && len(out.Stdout) == 0 {
		return &Error{
			Class: InvalidOutput, Err: fmt.Errorf("the login runs no command, not even sh: %w", err),
			Stderr: known.Stderr, Next: LoginStep,
		}
	}
	if failed != nil {
		return err
	}
	tried, ok := ParseTrial(out.Stdout, diagnosisMark)
	if !ok {
		return err
	}
	return tried.explain(host, known, err)
}

const diagnosisMark = "genv-diagnosis"

// LoginStep is the next step where a login doesn't run the command that it is given.
const LoginStep = "let the login run commands: look at its shell and that one's rc files, for ForceCommand in " +
	"sshd_config, and command= in authorized_keys"

// TrySudo is a program for sh that tries what sudo allows, and prints it in lines for ParseTrial that begin with $m. $1
// is the genv. $2 is "sudo", or "login" for commands without sudo, since hosts log a user who has no rights. It looks
// for genv in the path of sudo, then in the usual folders, and last in the path of the login; a program that others
// than root can change must not be in sudoers. It starts `usage serve`, which ends at once when it reads nothing, only
// where sudo lists that as allowed; with "doctor" always, and then it tries what else sudo allows. The terminal of
// script(1) shows whether one is missing. Any login shell passes on one line without exclamation marks.
const TrySudo = `LC_ALL=C; export LC_ALL; exec </dev/null; say() { printf "%s\n" "$m $*"; }; t() { ` +
	`if command -v timeout >/dev/null; then timeout 2 "$@"; else "$@"; fi; }; echo; ` +
	`say uid "$(id -u)"; say user "$(id -un)"; ` +
	`l=; n=; if [ "$2" = login ]; then n=yes; fi; if [ -z "$n" ]; then if command -v sudo >/dev/null; then l=$(t ` +
	`sudo -n -l 2>&1); s=$?; else say nosudo; s=1; fi; fi; ` +
	`d=$(printf "%s\n" "$l" | sed -n "s/.*secure_path=\([^,]*\).*/\1/p" | head -n 1 | tr -d "\\\\\""); ` +
	`g=$(PATH="${d:+$d:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH"; command -v "$1"); ` +
	`g=${g:+$(find -L "$g" -maxdepth 0 -user 0 -not -perm /022 2>/dev/null)}; say genv "$g"; ` +
	`if [ -z "$n" ]; then if [ "$s" = 0 ]; then say lists; ` +
	`elif command -v script >/dev/null && t script -qec "sudo -n -l" /dev/null >/dev/null 2>&1; then say tty; fi; ` +
	`v="usage serve"; may() { t sudo -n -l "${g:-$1}" $v $2 >/dev/null 2>&1; }; may "$1" "" || ` +
	`if may "$1" "--token t"; then v="$v --token t"; fi; ` +
	`for w in "$v" "usage snapshot" "usage snapshot --type devices" "usage execute"; do ` +
	`if [ -n "$g" ] && t sudo -n -l "$g" $w >/dev/null 2>&1; then say allows "$w"; fi; done; ` +
	`w=$v; if { [ "$s$2" = 1doctor ] || may "$1" ""; }; then o=$(t sudo ` +
	`-n "$1" $w 2>&1 | head -c 4000 | tr -d "\000"); ` +
	`if echo "$o" | grep -q "^genv-serve"; then say runs "$w"; elif [ -n "$o" ] && echo "$o" | grep -vq "^sudo"; ` +
	`then say fails; elif [ -n "$o" ]; then say said "$(echo "$o" | tail -n 1)"; fi; ` +
	`elif [ "$s" = 1 ]; then say said "$(echo "$l" | tail -n 1)"; fi; ` +
	`if [ "$2" = doctor ]; then if t sudo -n -l /bin/sh -c : >/dev/null 2>&1 && t sudo -n /bin/sh -c : 2>/dev/null; ` +
	`then say allows ` + AllowsEverything + `; ` +
	`elif [ -n "$g" ] && t sudo -n -l "$g" version >/dev/null 2>&1 && t sudo -n "$g" version >/dev/null 2>&1; ` +
	`then say allows ` + AllowsAllOfGenv + `; fi; fi; ` +
	`say entry "$(t sudo -n -ll "$g" usage serve 2>/dev/null | sed -n "s/^Sudoers entry: *//p" | head -n 1)"; fi; ` +
	`say end; printf "%.2000s\n" "$l"`

// TrialCommand runs TrySudo on a host.
func TrialCommand(host Host, mode, mark string) Command {
	return Command{Args: []string{"sh", "-c", "m=" + mark + "; " + TrySudo, "sh", host.program(), mode}}
}

// What SudoResult.Allows has besides commands, without a password.
const (
	AllowsEverything = "everything"
	AllowsAllOfGenv  = "all-of-genv"
)

// SudoResult is what sudo did on a host.
type SudoResult struct {
	UID, User string
	Genv      string // its path; empty if no genv that only root can change was found
	NoSudo    bool   // there is no sudo
	Lists     bool   // `sudo -n -l` answered
	NeedsTTY  bool   // it answers on a terminal alone: requiretty
	Allows    []string
	Runs      string // with which words `genv usage serve` ran as root; empty if it didn't
	Fails     bool   // it was started, and failed by itself: what it printed is not of sudo
	Entry     string // the file with the rule that decides, where sudo says it
	Said      string // the last line of sudo, where it failed
}

var (
	wantsPassword = text.Pattern(`(?m)^sudo(?:-rs)?: (a password is required|a terminal is required|no tty present|` +
		`sorry, you must have a tty|interactive authentication is required)`)
	sudoRefuses = text.Pattern(`(?m)(is not in the sudoers file|^(sudo-rs: )?(Sorry, user \S+ (is not allowed|` +
		`may not run sudo)|I'm sorry )|^sudo: .*(not allowed|unknown user))`)
)

// SudoSays is Sudo if sudo wants a password, by its words in the C locale; SudoRefused if it refuses; else
// CommandFailed.
func SudoSays(printed string) Class {
	switch {
	case wantsPassword().MatchString(printed):
		return Sudo
	case sudoRefuses().MatchString(printed):
		return SudoRefused
	}
	return CommandFailed
}

// broken says whether sudo itself failed: over its log, a plugin, or an account that is locked.
func (t *SudoResult) broken() bool {
	return strings.HasPrefix(t.Said, "sudo") && SudoSays(t.Said) == CommandFailed
}

var plainPath = text.Pattern(`^/[A-Za-z0-9_./+-]{1,255}$`)

// Reported is what a script reports of a host, by key, in lines "TOKEN KEY VALUE" up to "TOKEN end".
type Reported map[string][]string

// ParseReported reads them among other output, such as that of the login. ok says that the script came to its end.
func ParseReported(stdout []byte, token string) (r Reported, ok bool) {
	r = Reported{}
	for line := range bytes.SplitSeq(stdout, []byte("\n")) {
		rest, marked := bytes.CutPrefix(line, []byte(token+" "))
		key, value, _ := strings.Cut(text.Cut(string(rest), 600), " ")
		switch {
		case marked && key == "end":
			return r, true
		case marked:
			r[key] = append(r[key], value)
		}
	}
	return r, false
}

// Last is the last value of a key, on one line; empty for none. A banner may have come before it.
func (r Reported) Last(key string) string {
	return text.OneLine(strings.Join(r[key][max(0, len(r[key])-1):], ""))
}

// ParseTrial reads what TrySudo printed, among other output, without unusual paths. ok says that it came to its end.
func ParseTrial(stdout []byte, mark string) (t SudoResult, ok bool) {
	r, ended := ParseReported(stdout, mark)
	path := func(key string) string {
		return plainPath().FindString(strings.TrimSuffix(r.Last(key), ":"))
	}
	return SudoResult{
		UID: r.Last("uid"), User: r.Last("user"), Genv: path("genv"), NoSudo: r["nosudo"] != nil,
		Lists: r["lists"] != nil, NeedsTTY: r["tty"] != nil, Allows: r["allows"], Runs: r.Last("runs"),
		Fails: r["fails"] != nil, Entry: path("entry"), Said: r.Last("said"),
	}, ended && r["uid"] != nil
}

func (t *SudoResult) explain(host Host, known *Error, err error) error {
	e := &Error{Class: known.Class, Err: err, Stderr: known.Stderr}
	missing := t.Genv == ""
	switch {
	case host.NoSudo && missing:
		e.Next = "install genv on the host where every login finds it (/usr/local/bin): `genv remote install -H " +
			"HOST`; or set `genv:` for it in hosts.yaml"
	case host.NoSudo:
		e.Err = fmt.Errorf("%w; it is at %s, which is not in the path of the login", err, t.Genv)
		e.Next = fmt.Sprintf("set `genv: %s` for the host in hosts.yaml, or have it linked to %s", t.Genv, DefaultGenv)
	case (t.Runs != "" || t.Fails) && known.Class == CommandFailed: // the failure is genv's own, or is over
		return err
	case known.Class == GenvMissing && !missing:
		e.Err = fmt.Errorf("%w; it is at %s, which is not in the path of sudo", err, t.Genv)
		e.Next = fmt.Sprintf("set `genv: %s` for the host in hosts.yaml, or install genv at %s", t.Genv, DefaultGenv)
	case known.Class == GenvMissing:
	case t.NoSudo:
		e.Class, e.Next = Sudo, noSudoStep
	case missing && known.Class != Sudo || missing && t.Lists:
		e.Class, e.Err = GenvMissing, fmt.Errorf("no %s that only root can change was found on the host (%w)",
			host.program(), err)
	default:
		refusal := t.Refusal()
		if refusal == nil {
			return err
		}
		if refusal.Class == Sudo && known.Class == SudoRefused && !t.NeedsTTY && !t.Lists {
			refusal.Class, refusal.Next = SudoRefused, t.step(SudoRefused) // it says so at once, without a password
		}
		e.Class, e.Err, e.Next = refusal.Class, fmt.Errorf("%w (%w)", refusal.Err, err), refusal.Next
		if t.broken() {
			e.Err = err
		}
	}
	return e
}

// Refusal is why sudo doesn't run `genv usage serve` at its path, and what helps; nil if it does.
func (t *SudoResult) Refusal() *Error {
	account := SudoersAccount(t.User, t.UID)
	allowed := slices.ContainsFunc(t.Allows, func(words string) bool { return strings.HasPrefix(words, "usage serve") })
	e := &Error{Class: Sudo}
	switch {
	case t.Runs != "", t.Fails && allowed:
		return nil
	case t.NoSudo:
		e.Err, e.Next = errors.New("there is no sudo"), noSudoStep
	case t.NeedsTTY:
		e.Err = errors.New("sudoers has `Defaults requiretty`, and genv has no terminal")
		e.Next = fmt.Sprintf("exempt the account in sudoers on the host, after that line: `Defaults:%s !requiretty`",
			account)
	case t.broken():
		e.Err = errors.New(t.Said)
		e.Next = "correct what sudo says on the host: its log, its plugins (sudo.conf), or the account (`chage -l`)"
	case allowed && t.Lists:
		e.Err = errors.New("sudo allows genv, and wants a password for it: the last rule in sudoers that covers it " +
			"has no NOPASSWD")
		if t.Entry != "" {
			e.Err = fmt.Errorf("%w (it is in %s)", e.Err, t.Entry)
		}
		e.Next = fmt.Sprintf("of the rules in sudoers the last one counts: let the file with `%s` sort last, as "+
			"/etc/sudoers.d/%s does", SudoersLine(account, cmp.Or(t.Genv, DefaultGenv)), SudoersFile)
	case t.Lists:
		e.Class, e.Err, e.Next = SudoRefused, fmt.Errorf("sudoers does not allow `%s usage serve`",
			cmp.Or(t.Genv, DefaultGenv)), t.step(SudoRefused)
	default:
		e.Err, e.Next = errors.New("sudo wants a password, or knows no rule for the account"), t.step(Sudo)
	}
	return e
}

// PersonalStep is the next step for a login that is Personal.
const PersonalStep = "run it with sudo: only the controller's account has rights on the hosts"

const noSudoStep = "install sudo on the host, or log in as root with `sudo: false` for it in hosts.yaml"

// step is the next step for sudo to run genv. To install it writes the line of sudoers, too.
func (t *SudoResult) step(class Class) string {
	if t.Genv == "" {
		return GenvMissing.NextStep()
	}
	return SudoStep(class, SudoersAccount(t.User, t.UID), cmp.Or(t.Genv, DefaultGenv))
}

// SudoStep is the next step for sudo to run the genv at a path for an account, as SudoersAccount writes it.
func SudoStep(class Class, account, genv string) string {
	line := SudoersLine(account, genv)
	if class == SudoRefused {
		return fmt.Sprintf("in /etc/sudoers.d/%s on the host, allow genv with its full path and these commands: "+
			"`%s`; `sudo -l` there shows what is allowed now", SudoersFile, line)
	}
	return fmt.Sprintf("allow it without a password: add the line `%s` to /etc/sudoers.d/%s on the host", line,
		SudoersFile)
}

// DefaultGenv is the default path of genv on a host.
const DefaultGenv = "/usr/local/bin/genv"

// SudoersFile is the name of the file with our lines. The last rule that matches counts, so it sorts behind others.
const SudoersFile = "zz-genv"

// SudoersAccount is an account for sudoers(5): its name only if that can't mean anything else; USER if it isn't known.
func SudoersAccount(name, uid string) string {
	switch {
	case name != "" && name[0] != '-' && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == "":
		return name
	case uid != "" && strings.Trim(uid, "0123456789") == "":
		return "#" + uid
	}
	return "USER"
}

// SudoersLine is the line of sudoers(5) for a controller that logs in as an account. It allows each command without
// further arguments, and none that runs a program for its caller, such as `genv run`.
func SudoersLine(account, genv string) string {
	commands := []string{
		"usage snapshot", "usage snapshot --type devices", "usage snapshot --type envs",
		"usage snapshot --type processes", "usage execute", "usage serve",
	}
	for i, words := range commands {
		commands[i] = genv + " " + words
	}
	return account + " ALL=(root) NOPASSWD: " + strings.Join(commands, ", ")
}
