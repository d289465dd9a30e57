package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// eventRows are about a controller that acts when something happens on a host: how soon, and
// what that costs while nothing happens. The device nodes of the hosts are regular files, which
// the processes and the simulated nvidia-smi open as the real ones open nodes.
func (b *bench) eventRows(ctx context.Context, fleet *sshd.Fleet) ([]row, error) {
	smi, err := b.smiTime(fleet)
	if err != nil {
		return nil, err
	}
	events, idle, err := b.eventful(ctx, fleet)
	if err != nil {
		return nil, err
	}
	polling, err := b.polled(ctx, fleet)
	if err != nil {
		return nil, err
	}
	beyond := quantile(events, 0.99) - smi
	return []row{
		{
			what: fmt.Sprintf("violation to SIGTERM beyond nvidia-smi, p99, events, --interval 10s, %d hosts", b.hosts), figure: brief(beyond), goal: "≤ 200 ms",
			detail: fmt.Sprintf("p50 %s, p90 %s, nvidia-smi alone %s; %d violations within %s on constructed device nodes", brief(quantile(events, 0.5)-smi), brief(quantile(events, 0.9)-smi), brief(smi), len(events), spread),
		},
		{
			what: "CPU of an idle fleet, events at 10 s : polling at 1 s", figure: fmt.Sprintf("%.2f", idle.Seconds()/polling.Seconds()), goal: "< 1", ratio: true,
			detail: fmt.Sprintf("controller and hosts, %d of them: %s and %s in %s", b.hosts, brief(idle), brief(polling), idleFor),
		},
	}, nil
}

// eventful is how long violations last with events, and what an idle fleet costs then.
func (b *bench) eventful(ctx context.Context, fleet *sshd.Fleet) (times []time.Duration, idle time.Duration, err error) {
	c, err := b.startController(ctx, fleet.SSHConfig(), b.names(), 10*time.Second, "--non-env-processes")
	if err != nil {
		return nil, 0, err
	}
	defer c.end()
	if idle, err = c.idle(ctx, fleet); err != nil {
		return nil, 0, err
	}
	times, err = violateAll(ctx, fleet)
	return times, idle, err
}

// polled is what an idle fleet costs that is looked at every second.
func (b *bench) polled(ctx context.Context, fleet *sshd.Fleet) (time.Duration, error) {
	c, err := b.startController(ctx, fleet.SSHConfig(), b.names(), time.Second, "--non-env-processes", "--events", "off")
	if err != nil {
		return 0, err
	}
	defer c.end()
	return c.idle(ctx, fleet)
}

// idleFor is for how long an idle fleet is measured.
const idleFor = 20 * time.Second

// idle is the processor time that a controller and all of its hosts take while nothing
// happens. The controller goes on after that.
func (c *controlled) idle(ctx context.Context, fleet *sshd.Fleet) (time.Duration, error) {
	if err := c.goOn(); err != nil {
		return 0, err
	}
	time.Sleep(2 * time.Second) // first waits, which end at once
	before := cpuOfAll(fleet.Dir, c.cmd.Process.Pid)
	select {
	case <-time.After(idleFor):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	return cpuOfAll(fleet.Dir, c.cmd.Process.Pid) - before, nil
}

// goOn continues a controller that cycles stopped, and drops its output.
func (c *controlled) goOn() error {
	go func() { // its output must flow
		for c.lines.Scan() {
		}
	}()
	return c.cmd.Process.Signal(syscall.SIGCONT)
}

// cpuOfAll is the processor time of a controller and of all genv processes of a fleet, with
// that of the nvidia-smi that they ran.
func cpuOfAll(dir string, controller int) time.Duration {
	total := jiffies(controller)
	links, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is well formed
	for _, link := range links {
		program, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(program, dir) {
			continue // it has ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil && pid != controller {
			total += jiffies(pid)
		}
	}
	return time.Duration(total) * 10 * time.Millisecond
}

// jiffies is the time of a process and of its children that ended, in hundredths of a second
// (proc_pid_stat(5), fields 14 to 17); 0 if it has ended.
func jiffies(pid int) (total int64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, field := range fields[14-3 : 17-3+1] {
		n, _ := strconv.ParseInt(field, 10, 64) // the kernel writes numbers
		total += n
	}
	return total
}

// smiTime is how long the nvidia-smi of a host takes for what a look asks.
func (b *bench) smiTime(fleet *sshd.Fleet) (time.Duration, error) {
	h := fleet.Hosts()[0]
	medians, err := b.inTurn([]func() (time.Duration, error){timed(func() error {
		cmd := exec.Command(h.NvidiaSMI(), "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")
		cmd.Env = h.Variables()
		return cmd.Run()
	})})
	if err != nil {
		return 0, fmt.Errorf("nvidia-smi: %w", err)
	}
	return medians[0], nil
}
