package testfleet

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// JobOptions describe a process that seems to use devices.
type JobOptions struct {
	// Command is a program and its arguments that lasts until it is ended,
	// such as "sleep", "infinity". It is looked up on the caller's PATH. It
	// should have no children: ending a job ends this one process.
	Command []string
	// Title is what ps shows in the place of Command[0]; empty for just that.
	Title string
	// Name is the name under which nvidia-smi lists it; empty for Command[0].
	Name string
	// Environment is its GENV_ENVIRONMENT_ID; empty for a process that is in
	// none.
	Environment snapshot.EnvID
	// Uses are the devices that nvidia-smi lists it on; none for a shell.
	Uses []Use
	// Environ is added to the machine's environment variables.
	Environ []string
	// Credential runs it as another user, for which the caller must be root.
	Credential *syscall.Credential
}

// Use is the memory that a job holds on a device.
type Use struct {
	Device snapshot.DeviceIndex
	MiB    int64 // negative for "the driver does not say"
}

// Start starts a job and puts it on its devices. It is in a process group of its
// own, so that a terminal's Ctrl-C does not reach it, and ends with the caller
// at the latest: the kernel kills it when this process dies.
func (m *Machine) Start(o JobOptions) (*Job, error) {
	if len(o.Command) == 0 {
		return nil, errors.New("a job needs a command")
	}
	j, err := StartJob(m.command(o))
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.jobs = append(m.jobs, j)
	m.mu.Unlock()
	apps := j.Apps(cmp.Or(o.Name, o.Command[0]), o.Uses)
	if err := m.change(func(h *gpus.Host) { h.Apps = append(h.Apps, apps...) }); err != nil {
		return nil, errors.Join(err, j.Kill())
	}
	return j, nil
}

func (m *Machine) command(o JobOptions) *exec.Cmd {
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	if o.Title != "" {
		cmd.Args[0] = o.Title
	}
	cmd.Dir = "/"
	cmd.Env = append(m.Environ(), o.Environ...)
	if o.Environment != "" {
		cmd.Env = append(cmd.Env, snapshot.ClaimVariable+"="+string(o.Environment))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: o.Credential}
	return cmd
}

// Job is a process that was started. It is a child of this process, which reaps
// it as soon as it ends.
type Job struct {
	cmd   *exec.Cmd
	start snapshot.StartTime
	done  chan struct{}
}

// StartJob starts a command as a job that no nvidia-smi shows: see Apps.
func StartJob(cmd *exec.Cmd) (*Job, error) {
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a job: %w", err)
	}
	j := &Job{cmd: cmd, done: make(chan struct{})}
	stat, err := proc.FS{}.Stat(j.PID()) // before Wait: the PID is surely still its own
	j.start = stat.Start
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(j.done)
	}()
	if err != nil {
		return nil, errors.Join(err, j.Kill())
	}
	return j, nil
}

// Apps is the job as nvidia-smi lists it under a name: once for each use.
func (j *Job) Apps(name string, uses []Use) []gpus.App {
	apps := make([]gpus.App, 0, len(uses))
	for _, u := range uses {
		app := gpus.App{PID: int(j.PID()), Start: uint64(j.start), Device: int(u.Device), Name: name}
		if u.MiB >= 0 {
			app.UsedMiB = &u.MiB
		}
		apps = append(apps, app)
	}
	return apps
}

// PID is the job's process id.
func (j *Job) PID() snapshot.PID { return snapshot.PID(j.cmd.Process.Pid) }

// Done is closed when the job has ended.
func (j *Job) Done() <-chan struct{} { return j.done }

// Running says whether it has not ended yet.
func (j *Job) Running() bool {
	select {
	case <-j.done:
		return false
	default:
		return true
	}
}

// Signal is the signal that ended the job; 0 when it runs or ended by itself.
func (j *Job) Signal() syscall.Signal {
	if j.Running() {
		return 0
	}
	status, ok := j.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0
	}
	return status.Signal()
}

// Terminate asks the job to end, with SIGTERM, and does not wait.
func (j *Job) Terminate() error { return j.signal(syscall.SIGTERM) }

// Kill ends the job with SIGKILL, and waits for its end.
func (j *Job) Kill() error {
	if err := j.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-j.done
	return nil
}

// signal goes through the pidfd that os.Process holds: never to another process
// that got the number later.
func (j *Job) signal(sig os.Signal) error {
	if err := j.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end job %d: %w", j.PID(), err)
	}
	return nil
}
