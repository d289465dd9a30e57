package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

// diagnoseTimeout bounds what Diagnose asks for.
const diagnoseTimeout = 5 * time.Second

// Diagnose asks a host why sudo did not run genv there. sudo itself says "a
// password is required" for three causes: that it wants one, that no line of
// sudoers covers the command, and that the program which a line covers isn't
// there. The answer is err with the right class, and with a next step that names
// genv's path as it was found; err itself when it has another cause, or when the
// host doesn't tell.
func Diagnose(ctx context.Context, runner Runner, host Host, err error) error {
	var known *Error
	if runner == nil || !errors.As(err, &known) || known.Next != "" ||
		known.Class != Sudo && known.Class != SudoRefused && known.Class != GenvMissing {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, diagnoseTimeout)
	defer cancel()
	out, failed := runner.Run(ctx, host, Command{Args: []string{"sh", "-c", diagnosis, "sh", host.program()}})
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
// the path of genv, and then what sudo said. It looks for genv where sudo does,
// then where programs are, and last where the login finds it; one that others
// than root could change is not for sudoers. It is one line, without exclamation
// marks, so that any login shell passes it on.
const diagnosis = `LC_ALL=C; export LC_ALL; l=$(sudo -n -l 2>&1); s=$?; ` +
	`d=$(printf "%s\n" "$l" | sed -n "s/.*secure_path=\([^,]*\).*/\1/p" | head -n 1 | tr -d "\\\\"); ` +
	`PATH="${d:+$d:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH"; ` +
	`g=$(command -v "$1"); g=${g:+$(find -L "$g" -maxdepth 0 -user 0 -not -perm /022 2>/dev/null)}; ` +
	`echo "` + diagnosisMark + ` $s $(id -un) $g"; printf "%.2000s\n" "$l"`

const diagnosisMark = "genv-diagnosis"

// diagnosed is what a host said.
type diagnosed struct {
	allowed bool   // sudo runs something without a password
	unknown bool   // sudoers has no line for the user at all
	user    string // empty when it is not a plain name
	genv    string // its path; empty when it was not found
}

var (
	plainUser = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`) })
	plainPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/[A-Za-z0-9_./+-]{1,255}$`) })
	noRights  = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)(is not in the sudoers file|^Sorry, user \S+ (is not allowed|may not run sudo))`)
	})
)

// parseDiagnosis reads what the diagnosis printed, behind whatever a login
// prints before it. What is not a plain name or path is not repeated.
func parseDiagnosis(stdout []byte) (diagnosed, bool) {
	at := bytes.LastIndex(append([]byte("\n"), stdout...), []byte("\n"+diagnosisMark+" "))
	if at < 0 {
		return diagnosed{}, false
	}
	line, said, _ := strings.Cut(string(stdout[at:]), "\n")
	fields := strings.SplitN(line, " ", 4)
	if len(fields) != 4 {
		return diagnosed{}, false
	}
	d := diagnosed{allowed: fields[1] == "0", unknown: noRights().MatchString(said)}
	if plainUser().MatchString(fields[2]) {
		d.user = fields[2]
	}
	if plainPath().MatchString(fields[3]) {
		d.genv = fields[3]
	}
	return d, true
}

// explain is err with what the host said.
func (d diagnosed) explain(host Host, known *Error, err error) error {
	e := &Error{Class: known.Class, Err: err, Stderr: known.Stderr}
	switch missing := d.genv == ""; {
	case known.Class == GenvMissing && !missing:
		e.Err = fmt.Errorf("%w; it is at %s, where it is not looked for", err, d.genv)
		e.Next = fmt.Sprintf("set `genv: %s` for the host in hosts.yaml, or install genv where it is looked for (%s)", d.genv, DefaultGenv)
	case known.Class == GenvMissing:
	case d.allowed && missing:
		e.Class, e.Err = GenvMissing, fmt.Errorf("no %s that belongs to root alone is on the host (%w)", host.program(), err)
	case d.allowed:
		e.Class, e.Err = SudoRefused, fmt.Errorf("no line of sudoers covers `%s usage …` (%w)", d.genv, err)
		e.Next = d.allow(SudoRefused)
	case d.unknown:
		e.Class, e.Next = SudoRefused, d.allow(SudoRefused)
	default:
		e.Next = d.allow(known.Class)
	}
	return e
}

// allow is the next step that has sudo run genv there.
func (d diagnosed) allow(class Class) string {
	user, genv := d.user, d.genv
	if user == "" {
		user = "USER"
	}
	if genv == "" {
		genv = DefaultGenv
	}
	return sudoStep(class, user, genv)
}

func sudoStep(class Class, user, genv string) string {
	line := SudoersLine(user, genv)
	if class == SudoRefused {
		return fmt.Sprintf("let /etc/sudoers.d/genv on the host name genv's full path and these commands: `%s`; `sudo -l` there shows what is allowed now", line)
	}
	return fmt.Sprintf("allow it without a password: a line `%s` in /etc/sudoers.d/genv on the host", line)
}
