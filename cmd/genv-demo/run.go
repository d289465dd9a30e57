package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// The exit codes of the demo.
const (
	exitWrong       = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// playerVariable in the environment names what plays the hosts' programs instead of this one: in tests one without the
// race detector, which starts in a quarter of the time.
const playerVariable = "GENV_DEMO_PLAYER"

// childGrace is how long genv has to end when the demo is cut short.
const childGrace = 5 * time.Second

// demo is one run of the demo.
type demo struct {
	*stage
	screen
	ctx    context.Context // ends when the demo is interrupted
	stderr io.Writer
	genv   string
	socket string // GENV_SOCKET of the commands; empty for the one in config.yaml
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	flags := flag.NewFlagSet("genv-demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	genv := flags.String("genv", "bin/genv", "the genv program to show")
	keep := flags.Bool("keep", false, "keep the fleet, with a controller and its page, until Ctrl-C")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	program, err := filepath.Abs(*genv)
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		fmt.Fprintf(stderr, "genv-demo: %v: build it with `make build`, or name it with -genv\n", err)
		return exitUsage
	}
	self := getenv(playerVariable)
	if self == "" {
		if self, err = os.Executable(); err != nil {
			fmt.Fprintf(stderr, "genv-demo: find this program: %v\n", err)
			return exitWrong
		}
	}
	s, err := build(self, time.Now())
	d := &demo{stage: s, screen: newScreen(stdout, getenv), ctx: ctx, stderr: stderr, genv: program, socket: "off"}
	code := exitWrong
	if err == nil {
		code, err = d.play()
	}
	switch {
	case err != nil || code != 0:
	case *keep:
		err = d.keep()
	default:
		d.title("See it live: `make demo KEEP=1` keeps the fleet until Ctrl-C, with")
		d.row("page", "http://"+pageAddress+"/")
		d.row("live view", "genv remote top, in another terminal, after the export that it prints")
	}
	if closing := s.Close(); err == nil {
		err = closing
	}
	switch {
	case ctx.Err() != nil && *keep && code == 0 && err == nil:
		fmt.Fprintln(stdout, "\nEverything that the demo started has ended.")
		return code
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "\ngenv-demo: interrupted; everything it started has ended")
		return exitInterrupted
	case err != nil:
		fmt.Fprintf(stderr, "genv-demo: %v\n", err)
		return exitWrong
	}
	return code
}

// h100s is a policy with a cap by model, for which anyone who doesn't use genv counts, too. Its hook is the demo's: the
// notices of its users would go to the terminals of the user who runs it.
const h100s = `defaults: {non-env-processes: count, warn: 30m}
caps:
  - {name: h100, of: {model: "H100*"}, gpus: {"*": 1, dave: 2}}
hooks: [{command: [%s, %s], events: [warn]}]
`

// play shows all scenes. An error is one of the demo itself; a wrong result is in the exit code.
func (d *demo) play() (int, error) {
	d.introduce(d.stage)
	if err := d.configure("config.yaml", d.config("")); err != nil {
		return 0, err
	}
	enforce := append([]string{"enforce", "-H", "@all"}, rules...)
	d.title("First a look at the fleet: which GPUs no environment has. Its hosts.yaml is in a folder of the demo.")
	d.command("export GENV_CONFIG_DIR=" + d.dir)
	err := d.run("devices")
	show := func(title string, words ...string) {
		if err == nil {
			d.title(title)
			err = d.run(words...)
		}
	}
	show("Which GPUs of gpu-04 are free, and who uses the others? (You play all users, so each process is yours.)",
		"gpus", "-H", "gpu-04")
	show("What would be done? A dry run asks every host, applies the rules, and changes nothing.",
		append(enforce, "--dry-run", "--cycles", "1")...)
	differences := d.differences(d.ctx, false)
	show("Now for real, two cycles a second apart: the second finds nothing left to do.",
		append(enforce, "--interval", "1", "--cycles", "2")...)
	show("Two GPUs of erin's are available again.", "gpus", "-H", "gpu-04")
	if err != nil {
		return 0, err
	}
	told, err := d.showCap()
	if err != nil {
		return 0, err
	}
	if differences = append(differences, d.differences(d.ctx, true)...); !told {
		differences = append(differences, "frank was told nothing")
	}
	d.conclude(differences)
	if len(differences) > 0 {
		return exitWrong, nil
	}
	return 0, nil
}

// showCap has somebody come who doesn't use genv, and a policy warn him, and reports whether he was told.
func (d *demo) showCap() (told bool, err error) {
	d.title("frank never heard of genv: he runs two jobs on H100s by hand. A policy has him count, and warns first.")
	for _, spec := range laterSpecs {
		if err := d.startJob(spec); err != nil {
			return false, err
		}
	}
	tee, err := exec.LookPath("tee")
	if err != nil {
		return false, err
	}
	path := filepath.Join(d.dir, "told.json")
	policy := fmt.Sprintf(h100s, tee, path)
	if err := d.configure("caps.yaml", policy); err != nil {
		return false, err
	}
	d.command("cat $GENV_CONFIG_DIR/caps.yaml")
	d.say(policy)
	if err := d.run("enforce", "-H", "@all", "--policy", filepath.Join(d.dir, "caps.yaml"), "--cycles", "1"); err != nil {
		return false, err
	}
	d.title("What frank is told, on his terminals and by mail:")
	var notice struct {
		Findings []struct{ User, Line, Advice string }
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &notice)
	}
	for _, f := range notice.Findings {
		d.say(f.Line + "\n" + f.Advice + "\n")
		told = told || f.User == "frank"
	}
	return told, err
}

// config is the demo's config.yaml, with further lines.
func (d *demo) config(further string) string {
	return fmt.Sprintf("ssh-config: %s\nenforce: {state-dir: %s}\n%s", d.fleet.SSHConfig(), filepath.Join(d.dir, "state"), further)
}

// run runs a command as a person would type it: genv remote with the demo's configuration files.
func (d *demo) run(words ...string) error {
	args := append([]string{"remote"}, words...)
	d.command("genv " + strings.Join(args, " "))
	cmd := exec.CommandContext(d.ctx, d.genv, args...)
	cmd.Env = append(os.Environ(), "GENV_CONFIG_DIR="+d.dir, "GENV_SOCKET="+d.socket)
	cmd.Stdout, cmd.Stderr = d.out, d.stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = childGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("genv remote %s ended with %s", words[0], exit.ProcessState)
	}
	return err
}

// differences lists what differs from the scene: before enforcement all processes run and all devices are attached; after
// it, those without a violation.
func (s *stage) differences(ctx context.Context, enforced bool) (list []string) {
	// So long it may take until this program, as the parent, sees the ends of all processes that genv has ended.
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for i, spec := range s.specs {
		job := s.jobs[i]
		ends, problem := enforced && spec.violation != "", "has ended"
		if ends {
			problem = "still runs"
			select {
			case <-job.Ended():
			case <-ctx.Done():
			}
		}
		if job.Running() == ends {
			list = append(list, fmt.Sprintf("process %d (%s) on %s %s", job.PID, spec.program, spec.host, problem))
		}
	}
	for _, spec := range envSpecs {
		if difference := s.environmentDiffers(spec, enforced); difference != "" {
			list = append(list, difference)
		}
	}
	return list
}

// environmentDiffers compares an environment and its host's state files with the scene; "" means that they are equal.
func (s *stage) environmentDiffers(spec envSpec, enforced bool) string {
	env := s.envs[envKey{spec.host, spec.user}]
	if !env.Shell.Running() {
		return fmt.Sprintf("the shell of %s on %s has ended", spec.user, spec.host)
	}
	devices, err := s.machines[spec.host].Devices()
	if err != nil {
		return fmt.Sprintf("%s: devices.json: %v", spec.host, err)
	}
	var want []snapshot.DeviceIndex
	for _, a := range spec.attached {
		if !enforced || a.violation == "" {
			want = append(want, a.device)
		}
	}
	if got := snapshot.AttachedTo(devices, env.EID); !slices.Equal(got, want) {
		return fmt.Sprintf("%s on %s is attached to GPUs %v, not %v", spec.user, spec.host, got, want)
	}
	return ""
}

// screen prints the demo, with colours only on a terminal whose user has not set NO_COLOR (https://no-color.org).
type screen struct {
	out     io.Writer
	colours bool
}

func newScreen(out io.Writer, getenv func(string) string) screen {
	file, ok := out.(*os.File)
	terminal := ok && term.IsTerminal(int(file.Fd()))
	return screen{out: out, colours: terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	cyan  = "36"
)

func (s screen) paint(colour, text string) string {
	if !s.colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (s screen) title(text string) { fmt.Fprintf(s.out, "\n%s\n", s.paint(bold, text)) }

func (s screen) say(text string) { fmt.Fprint(s.out, text) }

func (s screen) row(name, text string) { s.say(fmt.Sprintf("  %-16s %s\n", name, text)) }

func (s screen) command(line string) { fmt.Fprintf(s.out, "%s\n", s.paint(cyan, "$ "+line)) }

// item prints a line with a green check mark, or with a red cross and what is wrong.
func (s screen) item(text, problem string) {
	if problem == "" {
		fmt.Fprintf(s.out, "%s %s\n", s.paint(green, "✓"), text)
		return
	}
	fmt.Fprintf(s.out, "%s %s   %s\n", s.paint(red, "✗"), text, s.paint(red, problem))
}

// introduce shows the hosts, the processes, and which of them break a rule.
func (s screen) introduce(on *stage) {
	devices := 0
	for _, spec := range hostSpecs {
		devices += spec.devices
	}
	s.title(fmt.Sprintf("%d GPU hosts with %d GPUs, all on this machine", len(hostSpecs), devices))
	fmt.Fprintf(s.out, "The GPUs are simulated. The SSH servers (%s to %s, port %d)\n"+
		"and the processes are real; all of them are yours and end with this demo.\n",
		hostSpecs[0].address, hostSpecs[len(hostSpecs)-1].address, on.fleet.Port)
	if on.fleet.Port != port {
		fmt.Fprintf(s.out, "Another program listens on port %d, so the hosts are on port %d.\n", port, on.fleet.Port)
	}
	fmt.Fprintf(s.out, "\n%s\n", s.paint(dim, fmt.Sprintf("  %-8s %-7s %8s  %-11s %3s %9s", "HOST", "USER", "PID", "PROCESS", "GPU", "MEMORY")))
	for i, spec := range on.specs {
		s.item(fmt.Sprintf("%-8s %-7s %8d  %-11s %3d %9s",
			spec.host, cmp.Or(spec.user, "-"), on.jobs[i].PID, spec.program, spec.device, text.GiB(spec.miB<<20)), spec.violation)
	}
	for _, env := range envSpecs {
		for _, a := range env.attached {
			if a.violation != "" {
				s.item(fmt.Sprintf("%-8s %-7s %8s  %-11s %3d %9s", env.host, env.user, "", "(attached)", a.device, ""), a.violation)
			}
		}
	}
}

// conclude shows the result of the checks.
func (s screen) conclude(differences []string) {
	if len(differences) > 0 {
		s.title("The result is wrong:")
		for _, d := range differences {
			s.item("", d)
		}
		return
	}
	ended, detached := 0, 0
	jobs := slices.Concat(jobSpecs, laterSpecs)
	for _, spec := range jobs {
		if spec.violation != "" {
			ended++
		}
	}
	for _, env := range envSpecs {
		for _, a := range env.attached {
			if a.violation != "" {
				detached++
			}
		}
	}
	s.title("Checked from outside of genv:")
	s.item(fmt.Sprintf("the %d processes that broke a rule have ended, and %d GPUs were detached", ended, detached), "")
	s.item(fmt.Sprintf("the other %d processes and %d shells still run", len(jobs)-ended, len(envSpecs)), "")
	s.item("the dry run had changed nothing", "")
}
