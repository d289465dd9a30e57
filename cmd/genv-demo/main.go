// Command genv-demo shows genv at work on a fleet, on one machine and without root or a GPU: four simulated hosts with
// real SSH servers and real processes, people who share their GPUs, rules that some of them break, and the real genv
// program, which enforces the rules. The demo checks by itself what became of every process, exits with 1 if the result
// is wrong, and leaves nothing running.
//
//	make demo
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
)

func main() {
	if code, ok := playRole(); ok {
		os.Exit(code)
	}
	// SIGPIPE too: after `make demo | head` there is something to clean up.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	// The end takes a second, so further signals of an impatient person are ignored, or files would be left.
	// Should it hang, another signal ends the program at once; the kernel ends its children.
	context.AfterFunc(ctx, func() { time.AfterFunc(2*childGrace, stop) })
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
}

// playRole runs what this program plays on the simulated hosts, if it was started as that: nvidia-smi, genv, or a job.
func playRole() (code int, ok bool) {
	switch filepath.Base(os.Args[0]) {
	case "nvidia-smi":
		return gpus.Main(os.Args[1:], os.Stdout, os.Stderr, os.Getenv), true
	case hostGenv:
		return runHostGenv(), true
	}
	delay, err := time.ParseDuration(os.Getenv(jobVariable))
	if err != nil {
		return 0, false
	}
	return work(delay), true
}

// hostGenv is the name of genv on the simulated hosts.
const hostGenv = "genv"

// runHostGenv is genv with the commands for hosts only, and with one difference: one account plays all users.
func runHostGenv() int {
	program := command.Program{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now, Version: "demo", SharedAccount: play,
	}
	app := &cli.App{Name: hostGenv, Commands: host.Commands(program), ExitErrHandler: func(*cli.Context, error) {}}
	err := app.Run(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "genv:", err)
	}
	return command.ExitCode(err)
}

// play says who a process belongs to: outside of environments it is who the demo started it for, with a made-up uid.
func play(p *snapshot.Process) {
	p.UID = nil
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID)) // it may have ended
	for entry := range strings.SplitSeq(string(environ), "\x00") {
		if user, ok := strings.CutPrefix(entry, "USER="); ok && user != "" && p.EID == "" {
			p.UID, p.Username = new(snapshot.UID(60000+len(user))), snapshot.Username(user)
		}
	}
}

// jobVariable in the environment makes this program a job. Its value is how long the job takes to end after SIGTERM.
const jobVariable = "GENV_DEMO_JOB"

// work waits for SIGTERM, and then for a delay, as a job does that writes a checkpoint.
func work(delay time.Duration) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	select {
	case <-asked:
		time.Sleep(delay)
		return 128 + 15
	case <-time.After(7 * 24 * time.Hour): // longer than the demo, also one that is kept
		return 0
	}
}

// pageAddress is where a kept demo shows its page, if the port is free.
const pageAddress = "127.0.0.1:8077"

// offenceEvery is how often processes break a rule in a kept demo, and warnFor how long a
// policy lets them run then, so that one has time to see them.
const (
	offenceEvery = 25 * time.Second
	warnFor      = 8 * time.Second
)

// keep runs a controller on the fleet until the demo is interrupted.
func (d *demo) keep() error {
	for _, job := range d.jobs[len(jobSpecs):] { // frank's: genv would refuse them, as of another uid than he has here
		job.Kill()
	}
	policy := fmt.Sprintf("defaults:\n  non-env-processes: true\n  max-devices-per-user: 2\n  warn: {for: %s}\n", warnFor)
	if err := d.configure("policy.yaml", policy); err != nil {
		return err
	}
	log, socket := filepath.Join(d.dir, "audit.jsonl"), filepath.Join(d.dir, "controller.sock")
	if err := d.configure("config.yaml", d.config(fmt.Sprintf("audit-log: %s\nsocket: %s\n", log, socket))); err != nil {
		return err
	}
	d.socket = ""
	page, err := freeAddress(d.ctx)
	if err != nil {
		return err
	}
	offending := make(chan error, 1)
	go func() { offending <- d.offend() }()
	d.title("The fleet is kept and enforced every second, until Ctrl-C. Look at it from a browser:")
	d.row("page", "http://"+page+"/")
	d.title("Or from another terminal, after")
	d.say(fmt.Sprintf("  export GENV_CONFIG_DIR=%s PATH=%s:$PATH\n\n", d.dir, filepath.Dir(d.genv)))
	for _, viewer := range viewers {
		d.row(viewer[0], viewer[1])
	}
	d.say(fmt.Sprintf("\nEvery %s a process in no environment starts on gpu-01, and one of bob's on a GPU of gpu-02 that he hasn't attached.\n"+
		"They are found at once, and ended after %s.\n\n", offenceEvery, warnFor))
	err = d.run("enforce", "-H", "@all", "--interval", "1", "--web", page)
	if d.ctx.Err() != nil {
		err = nil
	}
	if failed := <-offending; err == nil {
		err = failed
	}
	return err
}

// viewers are how to look at the fleet.
var viewers = [][2]string{
	{"live view", "genv remote top"},
	{"free GPUs", "genv remote gpus --free"},
	{"GPU hours", "genv remote report"},
	{"who uses what", "genv remote gpus"},
	{"two free GPUs", "genv remote wait --gpus 2"},
	{"leave bob alone", `genv remote exempt --user bob --for 1h --reason "deadline"`},
	{"what was done", "genv remote history"},
	{"is all in order?", "genv remote doctor"},
}

// offences are the processes that break a rule in a kept demo: one of no user, and one that its user finds on the page.
var offences = []jobSpec{
	{host: "gpu-01", program: "miner", device: 6, miB: 4200, load: 99},
	{host: "gpu-02", user: "bob", program: "notebook", device: 3, miB: 9000, load: 38},
}

// offend starts them, again and again.
func (d *demo) offend() error {
	ticker := time.NewTicker(offenceEvery)
	defer ticker.Stop()
	for {
		for _, spec := range offences {
			if err := d.startJob(spec); err != nil {
				return err
			}
		}
		select {
		case <-d.ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// freeAddress is pageAddress, or one with another port if that is in use.
func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", pageAddress)
	if err != nil {
		listener, err = config.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", fmt.Errorf("find a port for the page: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
