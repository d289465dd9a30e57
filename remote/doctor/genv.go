package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// checkGenv judges the genv on the host, and makes the checks that only the host can make.
func (e *examination) checkGenv(ctx context.Context, s survey) {
	path := s.genv()
	e.Genv = doctor.GenvProgram{Path: doctor.OneLine(path), Version: s.version}
	if path == "" {
		e.add(doctor.Problem(doctor.Genv, doctor.Cause(remote.GenvMissing), "there is no genv on the host").
			Next("install it: `genv remote install -H HOST`, or set `genv:` for it in hosts.yaml"))
		e.unseen()
		return
	}
	document, err := e.hostDocument(ctx, path)
	if err != nil {
		e.unseen()
	} else {
		e.Genv.Version, e.Genv.Protocol = cmp.Or(document.Genv.Version, s.version), document.Genv.Protocol
		own, seen := document.System, e.System
		e.System = doctor.System{
			OS: cmp.Or(own.OS, seen.OS), Kernel: cmp.Or(own.Kernel, seen.Kernel), Arch: cmp.Or(own.Arch,
				seen.Arch), Driver: own.Driver,
		}
		for _, c := range document.Checks {
			if c.Name != doctor.Clock { // which was compared
				e.add(c)
			}
		}
		if e.Guard != nil {
			e.add(doctor.CompareGuard(e.found[doctor.Guard], document.Guard, e.Guard(e.host)))
		}
	}
	e.add(doctor.Worst(e.checkVersion(s, err), e.checkProgram(s)))
}

// unseen says that the host's own checks need the genv of this version there.
func (e *examination) unseen() {
	for _, name := range doctor.HostNames() {
		if _, made := e.found[name]; !made {
			e.add(doctor.Unknown(name, "only the host's own `genv doctor` shows it"))
		}
	}
}

// hostDocument runs `genv doctor` on the host, as the login. It exits with 3 if it finds
// something, so its output counts whatever the exit status.
func (e *examination) hostDocument(ctx context.Context, path string) (*doctor.HostDocument, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout*3/4)
	defer cancel()
	args := []string{
		"sh", "-c", `echo; echo "$0"; exec "$@"`, e.token, path, "doctor", "--format", "json", "--timeout",
		e.smiTimeout().String(),
	}
	out, err := e.run(ctx, remote.Command{Args: args})
	_, data, found := strings.Cut("\n"+string(out.Stdout), "\n"+e.token+"\n")
	if found && strings.TrimSpace(data) != "" {
		document, invalid := doctor.Decode([]byte(data))
		if invalid == nil {
			return document, nil
		}
		if err == nil {
			return nil, &remote.Error{
				Class: remote.InvalidOutput, Err: invalid,
				Next: "run `genv doctor --format json` on the host and look at what it prints",
			}
		}
	}
	if err == nil {
		err = remote.Errorf(remote.InvalidOutput, "`genv doctor` printed nothing")
	}
	return nil, err
}

// smiTimeout is how long nvidia-smi may take on the host: well below our own deadline.
func (e *examination) smiTimeout() time.Duration {
	return min(max(e.Timeout/3, time.Second), 10*time.Second).Round(time.Second)
}

var version143 = text.Pattern(`^(0\.\d{1,3}|1\.[0-4])\.\d{1,3}$`)

// checkVersion judges the version and protocol. failure is why there is no document.
func (e *examination) checkVersion(s survey, failure error) doctor.Check {
	seen := fmt.Sprintf("%s, version %s", e.Genv.Path, cmp.Or(e.Genv.Version, "unknown"))
	known, ok := errors.AsType[*remote.Error](failure)
	switch {
	case failure == nil:
		return doctor.First(doctor.Genv, doctor.If(e.Genv.Protocol != frame.Version, doctor.Cause(remote.Version),
			"%s, protocol %d, and this genv speaks protocol "+
				"%d", seen, e.Genv.Protocol, frame.Version).Next(remote.Version.NextStep()), e.found[doctor.Genv])
	case version143().MatchString(s.version):
		return doctor.Problem(doctor.Genv, "genv-1.4.3", "%s: it reports no start times, UUIDs and outcomes, and has "+
			"no `genv doctor`", seen)
	case ok && known.Class == remote.CommandFailed && unknownCommand().MatchString(known.Stderr):
		return doctor.Problem(doctor.Genv, "genv-older", "%s: it has no `genv doctor`", seen)
	}
	c := failed(doctor.Genv, failure)
	c.Detail = doctor.OneLine(seen + ": `genv doctor`: " + c.Detail)
	return c
}

var unknownCommand = text.Pattern(`unknown command|invalid choice|no command|is no command`)

// checkProgram judges the file that the name of genv leads to, for the login and for sudo.
func (e *examination) checkProgram(s survey) doctor.Check {
	login, root := s.programs["login"], s.programs["sudo"]
	writable := func(p genvFile) doctor.Check {
		return doctor.If(p.path != "" && (p.uid != "0" || p.mode&0o022 != 0), "genv-writable",
			"%s belongs to uid %s with mode %04o", p.path, p.uid, p.mode)
	}
	const missing = doctor.Cause(remote.GenvMissing)
	set := fmt.Sprintf("set `genv: %s` for the host in hosts.yaml, or ", doctor.OneLine(s.genv()))
	return doctor.First(doctor.Genv, writable(root), writable(login),
		doctor.If(e.host.NoSudo && login.path == "", missing, "the login doesn't find genv; it is at %s",
			s.genv()).Next(set+"link it to "+remote.DefaultGenv),
		doctor.If(e.host.NoSudo, "", ""),
		doctor.If(root.path == "", missing, "sudo doesn't find genv; it is at %s",
			s.genv()).Next(set+"install genv at "+remote.DefaultGenv),
		doctor.If(login.path == "", "genv-not-in-login-path",
			"sudo finds %s, and the login finds no genv: commands that only look "+
				"fail", root.path).Next(set+"link it to "+remote.DefaultGenv),
		doctor.If(login.file != root.file, "genv-two-programs", "the login finds %s, and sudo %s", login.path,
			root.path),
		doctor.If(true, "", ""))
}
