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

// playRole runs what this program plays on the simulated hosts, if it was
// started as that: nvidia-smi, genv, or a user's job.
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
			uid := snapshot.UID(60000 + len(user))
			p.UID, p.Username = &uid, snapshot.Username(user)
		}
	}
}

// jobVariable in the environment makes this program a job. Its value is how long the job takes to end after SIGTERM.
const jobVariable = "GENV_DEMO_JOB"

const (
	terminated  = 128 + 15
	jobLifetime = 7 * 24 * time.Hour // longer than the demo, also one that is kept
)

// work waits for SIGTERM, and then for a delay, as a job does that writes a checkpoint.
func work(delay time.Duration) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	select {
	case <-asked:
		time.Sleep(delay)
		return terminated
	case <-time.After(jobLifetime):
		return 0
	}
}
