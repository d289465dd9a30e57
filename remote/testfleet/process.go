package testfleet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Process is a job that was started: a child of this process, which reaps it as
// soon as it ends.
type Process struct {
	PID  snapshot.PID
	User string

	cmd   *exec.Cmd
	start snapshot.StartTime
	ended chan struct{}
}

// startProcess starts a command and, if it speaks, waits until it is ready.
func startProcess(cmd *exec.Cmd, speaks bool) (*Process, error) {
	var stdout io.Reader
	if speaks {
		var err error
		if stdout, err = cmd.StdoutPipe(); err != nil {
			return nil, err
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{PID: snapshot.PID(cmd.Process.Pid), cmd: cmd, ended: make(chan struct{})}
	stat, err := proc.FS{}.Stat(p.PID) // before Wait: the PID is surely still its own
	p.start = stat.Start
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(p.ended)
	}()
	if err == nil && speaks {
		_, err = stdout.Read(make([]byte, 1))
	}
	if err != nil {
		return nil, errors.Join(err, p.end())
	}
	return p, nil
}

// Ended is closed when the process has ended and is reaped.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running says whether the process has not ended yet. One that has ended may be a zombie for
// a moment.
func (p *Process) Running() bool {
	if stat, err := (proc.FS{}).Stat(p.PID); err == nil && stat.Start == p.start && !stat.Gone() {
		return true
	}
	<-p.ended
	return false
}

// EndedBy is the signal that ended the process; 0 while it runs, and when it
// ended by itself.
func (p *Process) EndedBy() syscall.Signal {
	if p.Running() {
		return 0
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0
	}
	return status.Signal()
}

// Kill ends the process with SIGKILL, if it still runs, and waits for the end.
func (p *Process) Kill() { _ = p.end() } // it has ended already

// end signals through the pidfd of os.Process, so never a process that got the
// same PID later.
func (p *Process) end() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end job %d: %w", p.PID, err)
	}
	<-p.ended
	return nil
}
