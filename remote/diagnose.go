package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

// diagnoseTimeout is for the command of Diagnose.
const diagnoseTimeout = 5 * time.Second

// Diagnose finds out why sudo did not run genv on a host. sudo prints "a password
// is required" for three causes: a password is needed, sudoers doesn't allow the
// command, or the program that sudoers allows doesn't exist. The result is err
// with the right class, and with a next step that names the path of genv on that
// host. It is err itself if it has another cause, or the cause can't be found.
func Diagnose(ctx context.Context, runner Runner, host Host, err error) error {
	var known *Error
	if runner == nil || !errors.As(err, &known) || known.Next != "" ||
		known.Class != Sudo && known.Class != SudoRefused && known.Class != GenvMissing {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
	defer cancel()
	script := askSudo + diagnosis
	if host.NoSudo {
		script = withoutSudo + diagnosis
	}
	out, failed := runner.Run(ctx, host, Command{Args: []string{"sh", "-c", script, "sh", host.program()}})
	if failed != nil {
		return err
	}
	found, ok := parseDiagnosis(out.Stdout)
	if !ok {
		return err
	}
	return found.explain(host, known, err)
}

// diagnosis prints a line with the status of `sudo -n -l`, the user's name and
// the path of genv, and then the output of sudo. It looks for genv in sudo's path,
// then in the usual folders, and last in the path of the login; a program that
// others than root can change must not be in sudoers. It is one line without
// exclamation marks, so that any login shell passes it on. sudo isn't
// asked for commands that do without it: the host would log a user who has no rights.
const (
	askSudo     = `LC_ALL=C; export LC_ALL; l=$(sudo -n -l 2>&1); s=$?; `
	withoutSudo = `l=; s=-; `
	diagnosis   = `d=$(printf "%s\n" "$l" | sed -n "s/.*secure_path=\([^,]*\).*/\1/p" | head -n 1 | tr -d "\\\\"); ` +
		`PATH="${d:+$d:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH"; ` +
		`g=$(command -v "$1"); g=${g:+$(find -L "$g" -maxdepth 0 -user 0 -not -perm /022 2>/dev/null)}; ` +
		`echo; echo "` + diagnosisMark + ` $s $(id -un) $g"; printf "%.2000s\n" "$l"`
)

const diagnosisMark = "genv-diagnosis"

// diagnosed is the output of the diagnosis.
type diagnosed struct {
	allowed bool   // sudo runs something without a password
	unknown bool   // sudoers has no rule for the user at all
	user    string // empty if it has unusual characters
	genv    string // its path; empty if it was not found
}

var (
	plainUser = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`) })
	plainPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/[A-Za-z0-9_./+-]{1,255}$`) })
	noRights  = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)(is not in the sudoers file|^Sorry, user \S+ (is not allowed|may not run sudo))`)
	})
)

// parseDiagnosis reads what the diagnosis printed, after whatever the login printed.
// Names and paths with unusual characters are dropped.
func parseDiagnosis(stdout []byte) (diagnosed, bool) {
	at := bytes.LastIndex(append([]byte("\n"), stdout...), []byte("\n"+diagnosisMark+" "))
	if at < 0 {
		return diagnosed{}, false
	}
	line, sudo, _ := strings.Cut(string(stdout[at:]), "\n")
	fields := strings.SplitN(line, " ", 4)
	if len(fields) != 4 {
		return diagnosed{}, false
	}
	d := diagnosed{allowed: fields[1] == "0", unknown: noRights().MatchString(sudo)}
	if plainUser().MatchString(fields[2]) {
		d.user = fields[2]
	}
	if plainPath().MatchString(fields[3]) {
		d.genv = fields[3]
	}
	return d, true
}

// explain is err with the result of the diagnosis.
func (d diagnosed) explain(host Host, known *Error, err error) error {
	e := &Error{Class: known.Class, Err: err, Stderr: known.Stderr}
	switch missing := d.genv == ""; {
	case host.NoSudo && missing:
		e.Next = "install genv on the host where every login finds it (/usr/local/bin), or set `genv:` for it in hosts.yaml"
	case host.NoSudo:
		e.Err = fmt.Errorf("%w; it is at %s, which is not in the path of the login", err, d.genv)
		e.Next = fmt.Sprintf("set `genv: %s` for the host in hosts.yaml, or have it linked to %s", d.genv, DefaultGenv)
	case known.Class == GenvMissing && !missing:
		e.Err = fmt.Errorf("%w; it is at %s, which is not in the path of sudo", err, d.genv)
		e.Next = fmt.Sprintf("set `genv: %s` for the host in hosts.yaml, or install genv at %s", d.genv, DefaultGenv)
	case known.Class == GenvMissing:
	case d.allowed && missing:
		e.Class, e.Err = GenvMissing, fmt.Errorf("no %s that only root can change was found on the host (%w)", host.program(), err)
	case d.allowed:
		e.Class, e.Err = SudoRefused, fmt.Errorf("sudoers does not allow `%s usage …` (%w)", d.genv, err)
		e.Next = d.allow(SudoRefused)
	case d.unknown:
		e.Class, e.Next = SudoRefused, d.allow(SudoRefused)
	default:
		e.Next = d.allow(known.Class)
	}
	return e
}

// allow is the next step for sudo to run genv.
func (d diagnosed) allow(class Class) string {
	return SudoStep(class, cmp.Or(d.user, "USER"), cmp.Or(d.genv, DefaultGenv))
}

// SudoStep is the next step for sudo to run the genv at a path for a user.
func SudoStep(class Class, user, genv string) string {
	line := SudoersLine(user, genv)
	if class == SudoRefused {
		return fmt.Sprintf("in /etc/sudoers.d/genv on the host, allow genv with its full path and these commands: `%s`; `sudo -l` there shows what is allowed now", line)
	}
	return fmt.Sprintf("allow it without a password: add the line `%s` to /etc/sudoers.d/genv on the host", line)
}

// DefaultGenv is the default path of genv on a host.
const DefaultGenv = "/usr/local/bin/genv"

// SudoersLine is the line of sudoers(5) for a controller that logs in as user. It
// allows the commands of a controller, but none that runs a program for its caller,
// such as `genv lock` and `genv run`. Where a command has no "*", sudo only accepts
// it without further arguments.
func SudoersLine(user, genv string) string {
	return fmt.Sprintf("%s ALL=(root) NOPASSWD: %[2]s usage snapshot, %[2]s usage snapshot *, %[2]s usage execute, %[2]s usage serve *", user, genv)
}
