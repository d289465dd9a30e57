package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// controlled is a running `genv remote enforce`.
type controlled struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr bytes.Buffer
}

// document is what is read of a cycle.
type document struct {
	TookMS   float64 `json:"took_ms"`
	Hosts    int     `json:"hosts"`
	Answered int     `json:"answered"`
}

// startController starts one and lets it settle: a few cycles after all hosts have answered.
func (b *bench) startController(ctx context.Context, sshConfig string, names []string, interval time.Duration, flags ...string) (*controlled, error) {
	c, err := b.launch(ctx, sshConfig, strings.Join(names, ","), interval, flags...)
	if err != nil {
		return nil, err
	}
	if err = c.answered(len(names)); err == nil {
		_, err = c.cycles(3)
	}
	if err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// launch starts one with hosts as -H takes them.
func (b *bench) launch(ctx context.Context, sshConfig, hosts string, interval time.Duration, flags ...string) (*controlled, error) {
	args := append([]string{
		"remote", "-F", sshConfig, "-H", hosts, "-q", "enforce",
		"--interval", interval.String(), "--format", "json",
	}, flags...)
	state, err := os.MkdirTemp(filepath.Dir(sshConfig), "state-") // each begins without a memory
	if err != nil {
		return nil, err
	}
	c := &controlled{cmd: exec.CommandContext(ctx, b.genv, args...)}
	c.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state, "GENV_SOCKET=off", "GENV_CONFIG_DIR=off")
	c.cmd.Stderr = &c.stderr
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.lines = bufio.NewScanner(out)
	c.lines.Buffer(nil, 64<<20)
	return c, c.cmd.Start()
}

// answered waits for a cycle of so many hosts in which all answered.
func (c *controlled) answered(hosts int) error {
	var d document
	for range 100 {
		var err error
		if d, err = c.next(); err != nil {
			return err
		}
		if d.Hosts == hosts && d.Answered == hosts {
			return nil
		}
	}
	return fmt.Errorf("%d of %d hosts answered, where it should be all %d: %s", d.Answered, d.Hosts, hosts, c.stderr.Bytes())
}

func (c *controlled) next() (document, error) {
	var d document
	if !c.lines.Scan() {
		return d, fmt.Errorf("the controller ended: %w: %s", cmp.Or(c.lines.Err(), io.EOF), c.stderr.Bytes())
	}
	return d, json.Unmarshal(c.lines.Bytes(), &d)
}

// cycles is how long the next n cycles take. The controller runs for these only: it is stopped (SIGSTOP) between calls.
func (c *controlled) cycles(n int) ([]time.Duration, error) {
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return nil, err
	}
	var taken []time.Duration
	for i := range n + 1 {
		d, err := c.next()
		if err != nil {
			return nil, err
		}
		if d.Answered != d.Hosts {
			return nil, fmt.Errorf("%d of %d hosts answered: %s", d.Answered, d.Hosts, c.stderr.Bytes())
		}
		if i > 0 { // it was stopped in the first
			taken = append(taken, time.Duration(d.TookMS*1e6))
		}
	}
	return taken, c.cmd.Process.Signal(syscall.SIGSTOP)
}

// steadyRows are about n cycles while nothing changes. The controller is stopped afterwards.
func (c *controlled) steadyRows(hosts, n int, where, goal, goalCPU string) ([]row, error) {
	pid := c.cmd.Process.Pid
	if _, err := c.cycles(3); err != nil {
		return nil, err
	}
	before := cpuOf(pid)
	cycles, err := c.cycles(n)
	if err != nil {
		return nil, err
	}
	after := cpuOf(pid)
	resident, most, err := memoryOf(pid)
	if err != nil {
		return nil, err
	}
	return []row{
		{
			what: where + "steady cycle", figure: brief(quantile(cycles, 0.5)), goal: goal,
			detail: fmt.Sprintf("%d cycles, best %s, p99 %s; the servers take the same processors", n, brief(quantile(cycles, 0)), brief(quantile(cycles, 0.99))),
		},
		{what: where + "CPU a host and cycle", figure: brief((after - before) / time.Duration((n+1)*hosts)), goal: goalCPU, detail: "user and system, unchanged hosts"},
		{
			what: where + "memory a host", figure: fmt.Sprintf("%d KB", resident/int64(hosts)/1000), goal: "≤ 90 KB",
			detail: fmt.Sprintf("resident; %d MB, at most %d MB", resident/1e6, most/1e6),
		},
	}, nil
}

func (c *controlled) end() {
	_ = c.cmd.Process.Signal(syscall.SIGCONT)
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = c.cmd.Wait()
}

// memoryOf is a process's resident memory in bytes, now and at most.
func memoryOf(pid int) (resident, most int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) { // an error is that of another line
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &resident)
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &most)
	}
	return resident << 10, most << 10, nil
}

// cpuOf is the processor time that a process has taken itself; 0 if it has ended.
func cpuOf(pid int) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(int32(^pid<<3|2), &t) // the clock's id, see clock_getcpuclockid(3)
	return time.Duration(t.Nano())
}
