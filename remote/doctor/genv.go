package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (e *examination) checkGenv(ctx context.Context) {
	path := e.genv()
	if e.Genv.Path = doctor.OneLine(path); path == "" {
		e.unseen()
		e.add(doctor.Problem(doctor.Genv, doctor.Cause(remote.GenvMissing), "there is no genv on the host"))
		return
	}
	document, err := e.hostDocument(ctx, path)
	if err != nil {
		e.unseen()
	} else {
		e.Genv.Version, e.Genv.Protocol = cmp.Or(document.Genv.Version, e.Genv.Version), document.Genv.Protocol
		e.System.Driver = document.System.Driver
		for _, c := range document.Checks {
			if c.Name != doctor.Clock { // already compared
				e.add(c)
			}
		}
		if e.Guard != nil {
			e.add(doctor.CompareGuard(*e.Check(doctor.Guard), document.Guard, e.Guard(e.host)))
		}
	}
	e.add(doctor.Worst(e.checkVersion(err), e.checkProgram()))
}

func (e *examination) unseen() {
	for _, name := range doctor.HostNames() {
		if c := e.Check(name); c.Detail == notTried {
			c.Detail = "only the host's `genv doctor` shows it"
		}
	}
}

// hostDocument runs the host's `genv doctor` as the login. Its output counts whatever the exit status: 3 means
// findings.
func (e *examination) hostDocument(ctx context.Context, path string) (*doctor.HostDocument, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout*3/4)
	defer cancel()
	within := min(max(e.Timeout/3, time.Second), 10*time.Second).Round(time.Second) // for nvidia-smi
	args := []string{
		"sh", "-c", `echo; echo "$0"; exec "$@"`, e.token, path, "doctor", "--format", "json", "--timeout", within.String(),
	}
	out, err := e.run(ctx, remote.Command{Args: args})
	_, data, found := strings.Cut("\n"+string(out.Stdout), "\n"+e.token+"\n")
	if found && strings.TrimSpace(data) != "" {
		document, invalid := doctor.Decode([]byte(data))
		if invalid == nil {
			return document, nil
		}
		if err == nil {
			err = remote.Errorf(remote.InvalidOutput, "%w", invalid).
				WithNext("run `genv doctor --format json` on the host")
		}
	}
	if err == nil {
		err = remote.Errorf(remote.InvalidOutput, "`genv doctor` printed nothing")
	}
	return nil, err
}

var (
	version143     = text.Pattern(`^(0\.\d{1,3}|1\.[0-4])\.\d{1,3}$`)
	unknownCommand = text.Pattern(`unknown command|invalid choice|no command|is no command`)
)

func (e *examination) checkVersion(failure error) doctor.Check {
	seen := fmt.Sprintf("%s, version %s", e.Genv.Path, cmp.Or(e.Genv.Version, "unknown"))
	known, ok := errors.AsType[*remote.Error](failure)
	switch {
	case failure == nil && e.Genv.Protocol == frame.Version:
		return *e.Check(doctor.Genv)
	case failure == nil:
		return failed(doctor.Genv, remote.Errorf(remote.Version, "%s, protocol %d, and this genv speaks protocol %d",
			seen, e.Genv.Protocol, frame.Version))
	case version143().MatchString(e.Genv.Version):
		return doctor.Problem(doctor.Genv, "genv-1.4.3", "%s: it reports less, and has no `genv doctor`", seen)
	case ok && known.Class == remote.CommandFailed && unknownCommand().MatchString(known.Stderr):
		return doctor.Problem(doctor.Genv, "genv-older", "%s: it has no `genv doctor`", seen)
	}
	c := failed(doctor.Genv, failure)
	c.Detail = doctor.OneLine(seen + ": `genv doctor`: " + c.Detail)
	return c
}

func (e *examination) checkProgram() doctor.Check {
	login, root := e.programs["login"], e.programs["sudo"]
	writable := func(p genvFile) doctor.Check {
		return doctor.If(p.path != "" && (p.uid != "0" || p.mode&0o022 != 0), "genv-writable",
			"%s belongs to uid %s with mode %04o", p.path, p.uid, p.mode)
	}
	sudo, missing := !e.host.NoSudo, doctor.Cause(remote.GenvMissing)
	return doctor.Judge(doctor.Genv, "", writable(root), writable(login),
		doctor.If(sudo && root.path == "", missing, "sudo doesn't find genv at %s", e.genv()),
		doctor.If(!sudo && login.path == "", missing, "the login doesn't find genv at %s", e.genv()),
		doctor.If(login.path == "", "genv-not-in-login-path", "the login doesn't find genv at %s", root.path),
		doctor.If(sudo && login.file != root.file, "genv-two-programs", "the login finds %s, and sudo %s", login.path,
			root.path))
}

// The survey is one line without exclamation marks, so that any login shell passes it on (see remote.Quote). It doesn't
// run sudo on hosts configured without it, as sudo would log a user without rights.
const surveyScript = `LC_ALL=C; export LC_ALL; t=$1; say() { printf "%s\n" "$t $*"; }; echo; ` +
	`say user "$(id -un)"; say uid "$(id -u)"; say kernel "$(uname -r)"; say arch "$(uname -m)"; ` +
	`say os "$(head -c 4096 /etc/os-release | grep ^PRETTY_NAME=)"; ` +
	`w=$(command -v timeout >/dev/null 2>&1 && echo timeout); b=$(date +%s); ` +
	`l=; if [ "$3" = sudo ]; then l=$(${w:+$w 15} sudo -n -l 2>&1); fi; say took $(($(date +%s)-b)); ` +
	`d=$(printf "%s\n" "$l" | sed -n "s/.*secure_path=\([^,]*\).*/\1/p" | head -n 1 | tr -d "\\\\"); ` +
	`show() { case $2 in /*) say "$1" "$(stat -Lc "%u %a %d:%i" "$2") $2";; esac; }; ` +
	`p=$(command -v "$2"); q=$(PATH="${d:-$PATH}"; command -v "$2"); ` +
	`r=$(PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/opt/genv/bin; command -v "$2"); ` +
	`show login "$p"; show sudo "$q"; show usual "$r"; g=${p:-${q:-$r}}; ` +
	`if [ -n "$g" ]; then say version "$(${w:+$w 5} "$g" version 2>&1 | head -c 400 | tail -n 1)"; fi; ` +
	`say clock "$(date +%s)"; say end`

type genvFile struct {
	path string
	uid  string
	mode uint64
	file string // device and inode
}

func (e *examination) genv() string {
	return cmp.Or(e.programs["login"].path, e.programs["sudo"].path, e.programs["usual"].path)
}

// survey returns false if nothing more can be done.
func (e *examination) survey(ctx context.Context) bool {
	mode := "sudo"
	if e.host.NoSudo {
		mode = "login"
	}
	out, err := e.run(ctx, remote.Command{Args: []string{
		"sh", "-c", surveyScript, "sh", e.token, cmp.Or(e.host.GenvPath, "genv"), mode,
	}})
	answered := e.Now()
	peer, connected := e.Client.Peer(e.host)
	if err != nil && !connected {
		e.unreached(err)
		return false
	}
	e.reached(peer)
	r, complete := remote.ParseReported(out.Stdout, e.token)
	if !complete {
		if class := remote.ClassOf(err); err == nil || class == remote.CommandFailed || class == remote.GenvMissing {
			said := "the login runs another program"
			if err != nil {
				said += ": " + err.Error()
			}
			err = &remote.Error{Class: remote.InvalidOutput, Err: errors.New(said), Next: remote.LoginStep}
		}
		e.fail(doctor.Login, err)
		return false
	}
	e.take(r)
	e.add(checkClock(r.Last("clock"), answered))
	if !e.host.NoSudo && e.sudoTook < sudoSlow { // or the trial would take a minute
		out, _ := e.run(ctx, remote.TrialCommand(e.host, "doctor", e.token)) // incomplete output isn't parsed
		if trial, ok := remote.ParseTrial(out.Stdout, e.token); ok {
			e.trial = trial
		}
	}
	as := fmt.Sprintf("as %s (uid %s)", cmp.Or(e.user, "unknown"), cmp.Or(e.uid, "unknown"))
	took := e.Client.LoginTook(e.host).Round(time.Second)
	e.add(doctor.Judge(doctor.Login, as, doctor.If(took >= loginSlow, "login-slow", "%s, after %s", as, took)))
	return true
}

func (e *examination) take(r remote.Reported) {
	seconds, _ := strconv.Atoi(r.Last("took")) // 0 isn't slow
	e.user, e.sudoTook, e.programs = r.Last("user"), time.Duration(seconds)*time.Second, map[string]genvFile{}
	e.System = doctor.System{OS: doctor.OSName(r.Last("os")), Kernel: r.Last("kernel"), Arch: r.Last("arch")}
	e.Genv.Version = plainVersion().FindString(r.Last("version")) // otherwise it is an error message
	if _, err := strconv.ParseUint(r.Last("uid"), 10, 32); err == nil {
		e.uid = r.Last("uid")
	}
	for _, where := range []string{"login", "sudo", "usual"} {
		f := strings.SplitN(r.Last(where), " ", 4)
		if len(f) < 4 || !strings.HasPrefix(f[3], "/") {
			continue
		}
		if mode, err := strconv.ParseUint(f[1], 8, 32); err == nil {
			e.programs[where] = genvFile{path: f[3], uid: f[0], mode: mode, file: f[2]}
		}
	}
}

var plainVersion = text.Pattern(`^[0-9A-Za-z.+~_-]+$`)

// Slow logins and sudo: a cycle waits 10 s for an answer.
const (
	loginSlow = 5 * time.Second
	sudoSlow  = 3 * time.Second
)

// checkClock compares the host's last time with ours when its answer arrived.
func checkClock(printed string, now time.Time) doctor.Check {
	seconds, err := strconv.ParseInt(printed, 10, 64)
	if err != nil {
		return doctor.Unknown(doctor.Clock, "the host's `date` printed no time")
	}
	direction, difference := "ahead of", time.Unix(seconds, 0).Sub(now)
	if difference < 0 {
		direction = "behind"
	}
	seen := fmt.Sprintf("about %s %s the controller's", difference.Abs().Round(time.Second), direction)
	return doctor.Judge(doctor.Clock, "as the controller's",
		doctor.If(difference.Abs() > time.Minute, "clock-wrong", "%s", seen),
		doctor.If(difference.Abs() > 3*time.Second, "clock-off", "%s", seen)) // the answer took some time
}
