package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

// The survey prints what the later checks depend on, in sections that begin with our
// token: the login, and where genv is. It is one line without
// exclamation marks, so that any login shell passes it on (see remote.Quote).
// sudo isn't asked for a host that does without it: the host would log a user who has no
// rights.
const surveyScript = `LC_ALL=C; export LC_ALL; t=$1; say() { echo; echo "$t $1"; }; ` +
	`say who; id -un; id -u; uname -r; uname -m; say os; head -c 4096 /etc/os-release; ` +
	`l=; if [ "$3" = sudo ]; then l=$(sudo -n -l 2>&1); fi; ` +
	`d=$(printf "%s\n" "$l" | sed -n "s/.*secure_path=\([^,]*\).*/\1/p" | head -n 1 | tr -d "\\\\"); ` +
	`show() { case $2 in /*) echo "$1 $(stat -Lc "%u %a %d:%i" "$2") $2";; esac; }; ` +
	`p=$(command -v "$2"); q=$(PATH="${d:-$PATH}"; command -v "$2"); ` +
	`r=$(PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/opt/genv/bin; command -v "$2"); ` +
	`say genv; show login "$p"; show sudo "$q"; show usual "$r"; ` +
	`g=${p:-${q:-$r}}; say version; if [ -n "$g" ]; then $(command -v timeout >/dev/null 2>&1 && echo timeout 5) "$g" version 2>&1 | head -c 400; fi; ` +
	`say end`

// survey is what the survey printed.
type survey struct {
	user     string
	uid      string // empty if it is unknown
	system   doctor.System
	trial    remote.Trial // of sudo; zero if it wasn't tried
	programs map[string]program
	version  string // what `genv version` printed
}

// program is a file that genv's name leads to: by the path of the login, of sudo, or in
// one of the usual folders.
type program struct {
	path string
	uid  string
	mode uint64
	file string // device and inode
}

// genv is the path of the genv that the login can run; empty if there is none.
func (s *survey) genv() string {
	return cmp.Or(s.programs["login"].path, s.programs["sudo"].path, s.programs["usual"].path)
}

// survey runs the survey. ok is false if nothing more can be done.
func (e *examination) survey(ctx context.Context) (s survey, ok bool) {
	mode := "sudo"
	if e.host.NoSudo {
		mode = "login"
	}
	out, err := e.run(ctx, remote.Command{Args: []string{"sh", "-c", surveyScript, "sh", e.token, cmp.Or(e.host.GenvPath, "genv"), mode}})
	peer, connected := e.Client.Peer(e.host)
	if err != nil && !connected {
		e.unreached(err)
		return s, false
	}
	e.reached(peer)
	parts := sections(out.Stdout, e.token)
	if _, complete := parts["end"]; !complete {
		if err == nil || remote.ClassOf(err) == remote.CommandFailed {
			text := "the login works, but it runs another program than the one that was asked for"
			if err != nil {
				text += ": " + err.Error()
			}
			err = &remote.Error{
				Class: remote.InvalidOutput, Err: errors.New(text),
				Next: "let the login run commands: look for ForceCommand in sshd_config, command= in authorized_keys, and the login's shell",
			}
		}
		e.fail(doctor.Login, err)
		return s, false
	}
	s = parseSurvey(parts)
	if !e.host.NoSudo {
		script := "m=" + e.token + "; " + remote.TrySudo
		out, _ := e.run(ctx, remote.Command{Args: []string{"sh", "-c", script, "sh", cmp.Or(e.host.GenvPath, "genv"), "doctor"}}) // what is incomplete isn't parsed
		if trial, ok := remote.ParseTrial(out.Stdout, e.token); ok {
			s.trial = trial
		}
	}
	e.add(doctor.Good(doctor.Login, "as %s (uid %s)", cmp.Or(s.user, "unknown"), cmp.Or(s.uid, "unknown")))
	return s, true
}

// sections splits output at the lines that begin with the token.
func sections(output []byte, token string) map[string]string {
	parts := make(map[string]string)
	pieces := strings.Split("\n"+string(output), "\n"+token+" ")
	for _, piece := range pieces[1:] {
		name, content, _ := strings.Cut(piece, "\n")
		if _, twice := parts[name]; !twice {
			parts[name] = content
		}
	}
	return parts
}

func parseSurvey(parts map[string]string) survey {
	s := survey{programs: map[string]program{}}
	who := append(strings.Split(parts["who"], "\n"), "", "", "", "")
	s.user = doctor.OneLine(who[0])
	if _, err := strconv.ParseUint(who[1], 10, 32); err == nil {
		s.uid = who[1]
	}
	s.system = doctor.System{OS: doctor.OSName(parts["os"]), Kernel: doctor.OneLine(who[2]), Arch: doctor.OneLine(who[3])}
	for line := range strings.Lines(parts["genv"]) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 5)
		if len(f) < 5 || !strings.HasPrefix(f[4], "/") {
			continue
		}
		mode, err := strconv.ParseUint(f[2], 8, 32)
		if _, known := s.programs[f[0]]; err == nil && !known {
			s.programs[f[0]] = program{path: f[4], uid: f[1], mode: mode, file: f[3]}
		}
	}
	s.version = doctor.OneLine(lastLine(parts["version"]))
	return s
}

// lastLine is the last line with text in it: what comes before may be a warning.
func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return lines[len(lines)-1]
}

// Difference is how far a host's clock is ahead of the controller's.
type Difference struct {
	OffsetMS      int64 `json:"offset_ms"`      // how far it is ahead of the controller's
	UncertaintyMS int64 `json:"uncertainty_ms"` // of the offset
}

// The difference from which a clock is off or wrong, beyond the uncertainty.
const (
	clockOff   = 2 * time.Second
	clockWrong = time.Minute
)

// measurements is how often the clock is read: the quickest answer says most.
const measurements = 3

// measureClock reads the host's clock between two readings of ours.
func (e *examination) measureClock(ctx context.Context) {
	command := remote.Command{Args: []string{"sh", "-c", `echo; echo "$0 date"; date +%s.%N`, e.token}}
	var best *measurement
	failure := errors.New("the host's `date` printed no time")
	for range measurements {
		before, start := e.Now(), time.Now()
		out, err := e.run(ctx, command)
		took := time.Since(start)
		if err != nil {
			failure = err
			break
		}
		at := strings.TrimSpace(sections(out.Stdout, e.token)["date"])
		if m, ok := measure(before, took, at); ok && (best == nil || m.uncertainty < best.uncertainty) {
			best = &m
		}
	}
	if best == nil {
		e.add(doctor.Unknown(doctor.Clock, "%v", failure))
		return
	}
	e.Clock = &Difference{best.offset.Milliseconds(), best.uncertainty.Milliseconds() + 1}
	e.add(best.check())
}

// measurement is an offset, and how far from it the true one can be.
type measurement struct{ offset, uncertainty time.Duration }

// measure compares the time that the host printed, as seconds with or without a fraction,
// with the time of our clock before the command, which took a while: the host read its
// clock at some moment of it.
func measure(before time.Time, took time.Duration, printed string) (measurement, bool) {
	seconds, fraction, _ := strings.Cut(printed, ".")
	whole, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || whole < 0 || whole > math.MaxInt32*1000 {
		return measurement{}, false
	}
	there, resolution := time.Unix(whole, 0), time.Second
	if nanos, err := strconv.ParseUint(fraction, 10, 32); err == nil && len(fraction) == 9 {
		there, resolution = time.Unix(whole, int64(nanos)), 0
	}
	middle := before.Add(took / 2)
	return measurement{there.Add(resolution / 2).Sub(middle), (took + resolution) / 2}, true
}

func (m measurement) check() doctor.Check {
	direction := "ahead of"
	if m.offset < 0 {
		direction = "behind"
	}
	seen := fmt.Sprintf("%s ± %s %s the controller", seconds(m.offset.Abs()), seconds(m.uncertainty), direction)
	atLeast := m.offset.Abs() - m.uncertainty
	return doctor.First(doctor.Clock,
		doctor.If(atLeast > clockWrong, "clock-wrong", "%s", seen),
		doctor.If(atLeast > clockOff, "clock-off", "%s", seen),
		doctor.If(m.uncertainty > clockOff, "clock-uncertain", "%s", seen),
		doctor.If(true, "", "%s", seen))
}

func seconds(d time.Duration) string {
	if d > time.Minute {
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%.3fs", d.Seconds())
}
