package doctor

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// checkGenv judges the genv on the host, and makes the checks that only the host can make.
func (e *examination) checkGenv(ctx context.Context, s survey) {
	path := s.genv()
	e.Genv = doctor.Program{Path: doctor.OneLine(path), Version: s.version}
	if path == "" {
		e.add(doctor.Problem(doctor.Genv, doctor.Cause(remote.GenvMissing), "there is no genv on the host").
			Next("install it: `genv remote install -H HOST`, or set `genv:` for it in hosts.yaml"))
		e.plain(ctx)
		return
	}
	document, err := e.hostDocument(ctx, path)
	if err != nil {
		e.plain(ctx)
	} else {
		e.Genv.Version, e.Genv.Protocol = cmp.Or(document.Genv.Version, s.version), document.Genv.Protocol
		own, seen := document.System, e.System
		e.System = doctor.System{
			OS: cmp.Or(own.OS, seen.OS), Kernel: cmp.Or(own.Kernel, seen.Kernel), Arch: cmp.Or(own.Arch, seen.Arch), Driver: own.Driver,
		}
		for _, c := range document.Checks {
			if c.Name != doctor.Clock { // which was measured
				e.add(c)
			}
		}
	}
	e.add(doctor.Worst(e.checkVersion(s, err), e.checkProgram(s)))
}

// hostDocument runs `genv doctor` on the host, as the login. It exits with 3 if it finds
// something, so its output counts whatever the exit status.
func (e *examination) hostDocument(ctx context.Context, path string) (*doctor.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout*3/4)
	defer cancel()
	args := []string{"sh", "-c", `echo; echo "$0"; exec "$@"`, e.token, path, "doctor", "--format", "json", "--timeout", e.smiTimeout().String()}
	out, err := e.run(ctx, remote.Command{Args: args})
	_, data, found := strings.Cut("\n"+string(out.Stdout), "\n"+e.token+"\n")
	if found && strings.TrimSpace(data) != "" {
		document, invalid := doctor.Decode([]byte(data))
		if invalid == nil {
			return document, nil
		}
		if err == nil {
			return nil, &remote.Error{Class: remote.InvalidOutput, Err: invalid, Next: "run `genv doctor --format json` on the host and look at what it prints"}
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

var version143 = lazily(`^(0\.\d{1,3}|1\.[0-4])\.\d{1,3}$`)

// checkVersion judges the version and protocol. failure is why there is no document.
func (e *examination) checkVersion(s survey, failure error) doctor.Check {
	seen := fmt.Sprintf("%s, version %s", e.Genv.Path, cmp.Or(e.Genv.Version, "unknown"))
	var known *remote.Error
	switch {
	case failure == nil:
		return doctor.First(doctor.Genv, doctor.If(e.Genv.Protocol != agent.Version, doctor.Cause(remote.Version),
			"%s, protocol %d, and this genv speaks protocol %d", seen, e.Genv.Protocol, agent.Version).Next(remote.Version.NextStep()), e.found[doctor.Genv])
	case version143().MatchString(s.version):
		return doctor.Problem(doctor.Genv, "genv-1.4.3", "%s: it reports no start times, UUIDs and outcomes, and has no `genv doctor`; plain commands were used", seen)
	case remote.ClassOf(failure) == remote.CommandFailed && errors.As(failure, &known) && unknownCommand().MatchString(known.Stderr):
		return doctor.Problem(doctor.Genv, "genv-older", "%s: it has no `genv doctor`; plain commands were used", seen)
	}
	c := failed(doctor.Genv, failure)
	c.Detail = doctor.OneLine(seen + ": `genv doctor`: " + c.Detail)
	return c
}

var unknownCommand = lazily(`unknown command|invalid choice|no command|is no command`)

// checkProgram judges the file that the name of genv leads to, for the login and for sudo.
func (e *examination) checkProgram(s survey) doctor.Check {
	login, root := s.programs["login"], s.programs["sudo"]
	writable := func(p program) doctor.Check {
		return doctor.If(p.path != "" && (p.uid != "0" || p.mode&0o022 != 0), "genv-writable", "%s belongs to uid %s with mode %04o", p.path, p.uid, p.mode)
	}
	const missing = doctor.Cause(remote.GenvMissing)
	set := fmt.Sprintf("set `genv: %s` for the host in hosts.yaml, or ", doctor.OneLine(s.genv()))
	return doctor.First(doctor.Genv, writable(root), writable(login),
		doctor.If(e.host.NoSudo && login.path == "", missing, "the login doesn't find genv; it is at %s", s.genv()).Next(set+"link it to "+remote.DefaultGenv),
		doctor.If(e.host.NoSudo, "", ""),
		doctor.If(root.path == "", missing, "sudo doesn't find genv; it is at %s", s.genv()).Next(set+"install genv at "+remote.DefaultGenv),
		doctor.If(login.path == "", "genv-not-in-login-path", "sudo finds %s, and the login finds no genv: commands that only look fail", root.path).Next(set+"link it to "+remote.DefaultGenv),
		doctor.If(login.file != root.file, "genv-two-programs", "the login finds %s, and sudo %s", login.path, root.path),
		doctor.If(true, "", ""))
}

// maxContent is how much is read of a state file, in bytes.
const maxContent = 1 << 20

// plainScript prints what plain commands show of a host without our genv, in sections. Lines
// of state files begin with a space, so that none can begin a section: users write them.
// nvidia-smi comes last: it may hang.
const plainScript = `LC_ALL=C; export LC_ALL; t=$1; say() { echo; echo "$t $1"; }; d=${GENV_TMPDIR:-/var/tmp/genv}; ` +
	`near() { p=$1; until [ -e "$p" ]; do p=$(dirname "$p"); done; echo "$p"; }; ` +
	`say ns; stat -Lc %i /proc/self/ns/pid; say mounts; head -c 65536 /proc/self/mounts; ` +
	`say units; if [ -d /run/systemd/system ]; then timeout 5 systemctl show --no-pager --property="$3" $4; else echo absent; fi; ` +
	`say disk; for f in "$d" /var/log/genv; do p=$(near "$f"); echo "$f" $(df -Pk "$p" | tail -n 1) $(df -Pi "$p" 2>/dev/null | tail -n 1); done; ` +
	`say folder; echo "$d"; stat -c "%f %u %h %s" "$d"; ` +
	`say files; for f in envs.json devices.json genv.lock; do stat -c "%f %u %h %s $f" "$d/$f"; done 2>/dev/null; ` +
	`for f in envs.json devices.json; do [ -L "$d/$f" ] || { [ -f "$d/$f" ] && { say "content-$f"; head -c "$5" "$d/$f" | sed "s/^/ /"; }; }; done; ` +
	`say smi; b=$(date +%s%N); GENV_BYPASS=1 timeout -k 1 "$2" nvidia-smi $6 2>&1; s=$?; say smi-end; echo "$s $b $(date +%s%N)"; say end`

// plain makes the checks of the host with plain commands, as the login.
func (e *examination) plain(ctx context.Context) {
	limit := strconv.Itoa(int(e.smiTimeout().Seconds()))
	out, err := e.run(ctx, remote.Command{Args: []string{
		"sh", "-c", plainScript, "sh", e.token, limit, doctor.UnitProperties, strings.Join(doctor.Units(), " "),
		strconv.Itoa(maxContent + 1), strings.Join(nvidiasmi.ModesArgs(), " "),
	}})
	parts := sections(out.Stdout, e.token)
	if len(parts) == 0 && err != nil {
		for _, name := range doctor.HostNames() {
			if _, made := e.found[name]; !made {
				e.add(doctor.Unknown(name, "%v", err))
			}
		}
		return
	}
	driver := driverIn(parts)
	e.System.Driver = doctor.OneLine(driver.Version())
	e.add(
		doctor.CheckDriver(driver),
		doctor.CheckState(stateIn(parts)),
		doctor.CheckNamespace(parse(strings.TrimSpace(parts["ns"])), "", false),
		doctor.CheckGuard(e.System.Kernel, parts["mounts"], nil),
		doctor.CheckServices(strings.TrimSpace(parts["units"]) == "absent", parts["units"], nil),
		doctor.CheckDisk(spacesIn(parts["disk"], parts["mounts"])),
	)
}

// parse is a number; 0 if the text is none.
func parse(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

// driverIn reads what nvidia-smi printed. Without its end it is still running.
func driverIn(parts map[string]string) doctor.Driver {
	end := append(strings.Fields(parts["smi-end"]), "", "", "")
	var d doctor.Driver
	if from, to := parse(end[1]), parse(end[2]); from > 0 && to > from {
		d.Took = time.Duration(to - from)
	}
	code, err := strconv.Atoi(end[0])
	switch {
	case slices.Contains([]string{"", "124", "137"}, end[0]):
		d.Err = nvidiasmi.ErrTimeout
	case code == 127:
		d.Err = nvidiasmi.ErrNotInstalled
	case err != nil:
		d.Err = nvidiasmi.ErrGarbled
	default:
		d.Modes, d.Err = nvidiasmi.ParseModes(nvidiasmi.RunResult{Stdout: []byte(parts["smi"]), ExitCode: code})
	}
	return d
}

// stateIn reads what stat printed of the state folder, and what its files contain.
func stateIn(parts map[string]string) doctor.State {
	path, about, _ := strings.Cut(parts["folder"], "\n")
	s := doctor.State{Path: doctor.OneLine(path)}
	folder, ok := fileIn(strings.TrimSpace(about))
	if !ok {
		s.Missing = path != "" && strings.TrimSpace(about) == "" // stat printed nothing about it
		return s
	}
	s.Folder = &folder
	for line := range strings.Lines(parts["files"]) {
		f, ok := fileIn(strings.TrimSpace(line))
		if !ok {
			continue
		}
		_, read := parts["content-"+f.Name]
		content := contentIn(parts, f.Name)
		switch {
		case !f.Mode.IsRegular() || f.Name == "genv.lock":
		case !read || content == "" && f.Size > 0:
			f.Unread = "the login can't read it"
		case len(content) > maxContent:
			f.Unread = fmt.Sprintf("it has more than %d bytes", maxContent)
		default:
			f.Decode([]byte(strings.TrimSuffix(content, "\n")))
		}
		s.Files = append(s.Files, f)
	}
	return s
}

// contentIn is the content of a state file, without the space before each line.
func contentIn(parts map[string]string, name string) string {
	return strings.TrimPrefix(strings.ReplaceAll(parts["content-"+name], "\n ", "\n"), " ")
}

// fileIn reads a line of `stat -c "%f %u %h %s NAME"`.
func fileIn(line string) (f doctor.File, ok bool) {
	words := strings.Fields(line)
	if len(words) < 4 {
		return f, false
	}
	mode, err := strconv.ParseUint(words[0], 16, 32)
	if err != nil {
		return f, false
	}
	info := (&tar.Header{Mode: int64(mode)}).FileInfo() // archives have the bits of stat(2)
	f = doctor.File{Mode: info.Mode(), UID: snapshot.UID(parse(words[1])), Links: parse(words[2]), Size: int64(parse(words[3]))}
	if len(words) == 5 {
		f.Name = words[4]
	}
	if f.Mode.IsDir() {
		f.Links = 1
	}
	return f, true
}

// spacesIn reads a line for each folder: its path, what df says of the kilobytes, and of the inodes
// where it counts them.
func spacesIn(printed, mounts string) []doctor.Space {
	var spaces []doctor.Space
	for line := range strings.Lines(printed) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		s := doctor.Space{For: "the state files", Path: doctor.OneLine(f[0]), NoInodes: true}
		if f[0] == "/var/log/genv" {
			s.For = "the record"
		}
		if len(f) >= 7 {
			s.Free, s.ReadOnly = parse(f[4])<<10, readOnly(f[6], mounts)
		} else {
			s.Err = errors.New("df printed nothing about it")
		}
		if len(f) >= 13 {
			s.Inodes, s.NoInodes = parse(f[10]), parse(f[8]) == 0
		}
		spaces = append(spaces, s)
	}
	return spaces
}

// readOnly looks a mount point up in the text of /proc/self/mounts; the last mount counts.
func readOnly(point, mounts string) bool {
	found := false
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) >= 4 && f[1] == point {
			found = strings.HasPrefix(f[3]+",", "ro,")
		}
	}
	return found
}
