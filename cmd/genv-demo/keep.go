package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"
)

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
	d.viewers()
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

// invite prints how to keep the fleet, and where one sees it then.
func (d *demo) invite() {
	d.title("See it live: `make demo KEEP=1` keeps the fleet until Ctrl-C, with")
	d.row("page", "http://"+pageAddress+"/")
	d.row("live view", "genv remote top, in another terminal, after the export that it prints")
}

// viewers prints how to look at the fleet.
func (d *demo) viewers() {
	d.title("Or from another terminal, after")
	d.say(fmt.Sprintf("  export GENV_CONFIG_DIR=%s PATH=%s:$PATH\n\n", d.dir, filepath.Dir(d.genv)))
	d.row("live view", "genv remote top")
	d.row("free GPUs", "genv remote gpus --free")
	d.row("GPU hours", "genv remote report")
	d.row("who uses what", "genv remote gpus")
	d.row("two free GPUs", "genv remote wait --gpus 2")
	d.row("leave bob alone", `genv remote exempt --user bob --for 1h --reason "deadline"`)
	d.row("what was done", "genv remote history")
	d.row("is all in order?", "genv remote doctor")
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
