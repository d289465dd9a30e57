package sshfleet

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"github.com/seed-3119e985/genv/remote/sim/gpus"
	"github.com/seed-3119e985/genv/snapshot"
)

// Job is a process to be started on a host.
type Job struct {
	User string // alice, bob or carol
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
}

// Use is how much of a device a job seems to use.
type Use struct {
	Device snapshot.DeviceIndex
	MiB    int64 // negative when the driver would not say
}

// Process is a job that was started. It is a child of this process, which
// reaps it as soon as it ends.
type Process struct {
	PID  snapshot.PID
	User string

	cmd   *exec.Cmd
	ended chan struct{}
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
	cmd.Dir = "/"
	cmd.Env = h.jobEnviron(job)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)},
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := startAndListen(cmd, job.IgnoreTerm); err != nil {
		return nil, err
	}
	p := &Process{PID: snapshot.PID(cmd.Process.Pid), User: job.User, cmd: cmd, ended: make(chan struct{})}
	h.mu.Lock()
	h.processes = append(h.processes, p)
	h.mu.Unlock()
	go p.wait()
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
func startAndListen(cmd *exec.Cmd, speaks bool) error {
	if !speaks {
		return cmd.Start()
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return nil
}

func (p *Process) wait() {
	_ = p.cmd.Wait() // how it ended is in ProcessState
	close(p.ended)
}

// Ended is closed when the process has ended and is reaped.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running says whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// EndedBy is the signal that ended the process; 0 while it runs.
func (p *Process) EndedBy() syscall.Signal {
	if p.Running() {
		return 0
	}
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
}

// Kill ends the process, if it still runs, and waits for the end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // ended is as good
	<-p.ended
}

// show registers what a process uses with the stand-in for nvidia-smi.
func (h *Host) show(p *Process, uses []Use) error {
	if len(uses) == 0 {
		return nil
	}
	start, _, err := gpus.Start("/proc", int(p.PID))
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	simulated, err := gpus.Read(h.GPUs)
	if err != nil {
		return err
	}
	for _, u := range uses {
		app := gpus.App{PID: int(p.PID), Start: start, Device: int(u.Device), Name: p.cmd.Path}
		if u.MiB >= 0 {
			app.UsedMiB = &u.MiB
		}
		simulated.Apps = append(simulated.Apps, app)
	}
	return simulated.Write(h.GPUs)
}
