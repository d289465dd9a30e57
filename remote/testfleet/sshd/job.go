package sshd

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
)

// Job is a process to be started on a host.
type Job struct {
	User string // alice, bob, carol or root
	// Env is its environment beside USER, HOME and PATH, as NAME=value; see
	// Env.Var for one that puts it in an environment of genv.
	Env []string
	// Bare leaves it without any environment, as a process that has hidden its
	// own.
	Bare bool
	// Uses are the devices that it seems to use; none for a process that
	// nvidia-smi does not show.
	Uses []Use
	// IgnoreTerm makes it outlive SIGTERM.
	IgnoreTerm bool
	// Command is what it runs, and has to run on until it is ended; nil for
	// sleep. It prints a line when it is ready, if Speaks.
	Command []string
	Speaks  bool
	// Contained starts it in a PID namespace of its own, as containers are.
	Contained bool
}

// Use is how much of a device a job seems to use.
type Use = testfleet.Use

// Process is a job that was started.
type Process struct {
	PID  snapshot.PID
	User string

	job *testfleet.Job
}

// The programs of jobs: they wait to be ended. A signal that is ignored stays so
// through exec; the line on stdout says that it is.
const (
	lifetime   = "1000000" // seconds
	ignoreTerm = `trap "" TERM; echo; exec sleep ` + lifetime
)

// StartJob starts a real process of the user and has the host's nvidia-smi show
// it. It ends with the fleet at the latest.
func (h *Host) StartJob(job Job) (*Process, error) {
	p, err := h.start(job)
	if err != nil {
		return nil, fmt.Errorf("start a job of %s on %s: %w", job.User, h.Name, err)
	}
	if err := h.show(p, job.Uses); err != nil {
		return nil, err
	}
	return p, nil
}

func (h *Host) start(job Job) (*Process, error) {
	uid, err := UID(job.User)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sleep", lifetime)
	if job.IgnoreTerm {
		cmd = exec.Command("/bin/sh", "-c", ignoreTerm)
	}
	if job.Command != nil {
		cmd = exec.Command(job.Command[0], job.Command[1:]...)
	}
	cmd.Dir = "/"
	cmd.Env = h.jobEnviron(job)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)},
		Pdeathsig:  syscall.SIGKILL,
	}
	if job.Contained {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	p := &Process{User: job.User}
	if p.job, err = startAndListen(cmd, job.IgnoreTerm || job.Speaks); err != nil {
		return nil, err
	}
	p.PID = p.job.PID()
	h.mu.Lock()
	h.processes = append(h.processes, p)
	h.mu.Unlock()
	return p, nil
}

func (h *Host) jobEnviron(job Job) []string {
	if job.Bare {
		return []string{} // nil would be this process's own
	}
	return append([]string{"USER=" + job.User, "HOME=" + h.fleet.home(job.User), "PATH=" + pathWithoutLocal}, job.Env...)
}

// startAndListen starts the command and, if it is to say so, waits until it is
// ready.
func startAndListen(cmd *exec.Cmd, speaks bool) (*testfleet.Job, error) {
	if !speaks {
		return testfleet.StartJob(cmd)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	job, err := testfleet.StartJob(cmd)
	if err != nil {
		return nil, err
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		return nil, errors.Join(err, job.Kill())
	}
	return job, nil
}

// Ended is closed when the process has ended and is reaped.
func (p *Process) Ended() <-chan struct{} { return p.job.Done() }

// Running says whether the process has not ended yet.
func (p *Process) Running() bool { return p.job.Running() }

// EndedBy is the signal that ended the process; 0 while it runs.
func (p *Process) EndedBy() syscall.Signal { return p.job.Signal() }

// Kill ends the process, if it still runs, and waits for the end.
func (p *Process) Kill() { _ = p.job.Kill() } // ended is as good

// show registers what a process uses with the stand-in for nvidia-smi.
func (h *Host) show(p *Process, uses []Use) error {
	if len(uses) == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	simulated, err := gpus.Read(h.GPUs)
	if err != nil {
		return err
	}
	simulated.Apps = append(simulated.Apps, p.job.Apps("/bin/sleep", uses)...)
	return simulated.Write(h.GPUs)
}
