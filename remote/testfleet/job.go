package testfleet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Job is a process to be started on a machine.
type Job struct {
	User string // who starts it; see Machine.Account
	// Env is its environment beyond USER, HOME and PATH, as NAME=value; see
	// Env.Var for one that puts it in an environment of genv.
	Env  []string
	Bare bool  // starts it with an empty environ, like a process that hides its own
	Uses []Use // the devices that it seems to use; none for a process that nvidia-smi does not show
	// Opens has it open the nodes of the devices that it uses, and keep them open, as a CUDA
	// program does. It needs an environ; its command is the default one.
	Opens      bool
	Files      []*os.File // what it has open, from descriptor 3 on
	IgnoreTerm bool       // makes it ignore SIGTERM
	// Command is what it runs until it is ended; nil for sleep. If Speaks, it prints a line when it is ready.
	Command   []string
	Speaks    bool
	Name      string // what ps and nvidia-smi show; empty for the program
	Contained bool   // starts it in a PID namespace of its own, as containers are
}

// Use is how much of a device a job seems to use.
type Use struct {
	Device snapshot.DeviceIndex
	MiB    int64 // negative if the driver does not report it
	Load   *int  // utilization in percent; nil for a high one
}

// The programs of jobs wait to be ended. An ignored signal stays ignored after
// exec; the line on stdout means that SIGTERM is ignored now.
const (
	lifetime   = "1000000" // seconds
	ignoreTerm = `trap "" TERM; echo; exec sleep ` + lifetime
	jobPath    = "/usr/sbin:/usr/bin:/sbin:/bin"
)

// StartJob starts a real process of the user and has the machine's nvidia-smi show it. It is in a process group of its
// own, so that a terminal's Ctrl-C does not reach it. It ends with the machine, or when this process dies.
func (m *Machine) StartJob(job Job) (*Process, error) {
	cmd, err := m.command(job)
	if err != nil {
		return nil, fmt.Errorf("start a job of %s: %w", job.User, err)
	}
	p, err := startProcess(cmd, job.IgnoreTerm || job.Speaks)
	if err != nil {
		return nil, fmt.Errorf("start a job of %s: %w", job.User, err)
	}
	p.User = job.User
	m.mu.Lock()
	defer m.mu.Unlock()
	m.processes = append(m.processes, p)
	return p, m.show(p, cmd, job)
}

func (m *Machine) command(job Job) (*exec.Cmd, error) {
	account, err := m.account(job.User)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sleep", lifetime)
	if job.IgnoreTerm {
		cmd = exec.Command("/bin/sh", "-c", ignoreTerm)
	}
	if job.Opens {
		cmd = exec.Command("/bin/sh", "-c", m.openNodes(job.Uses)+"exec /bin/sleep "+lifetime)
	}
	if job.Command != nil {
		cmd = exec.Command(job.Command[0], job.Command[1:]...)
	}
	if job.Name != "" {
		cmd.Args[0] = job.Name
	}
	cmd.Dir, cmd.ExtraFiles = "/", job.Files
	cmd.Env = []string{} // nil would be this process's own
	if !job.Bare {
		cmd.Env = append([]string{"USER=" + job.User, "HOME=" + account.Home, "PATH=" + jobPath}, job.Env...)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if m.Account != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(account.UID), Gid: uint32(account.UID)}
	}
	if job.Contained {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	return cmd, nil
}

// openNodes is a script that opens the nodes of devices, at most 7 of them.
func (m *Machine) openNodes(uses []Use) string {
	script := ""
	for i, u := range uses[:min(len(uses), 7)] {
		script += fmt.Sprintf("exec %d<'%s'; ", 3+i, m.node(int(u.Device)))
	}
	return script
}

// account is what a user's processes run under.
func (m *Machine) account(user string) (Account, error) {
	if m.Account == nil {
		return Account{UID: snapshot.UID(os.Getuid()), Home: m.Dir}, nil
	}
	return m.Account(user)
}

// show adds what a process uses to the file that nvidia-smi shows.
func (m *Machine) show(p *Process, cmd *exec.Cmd, job Job) error {
	if len(job.Uses) == 0 {
		return nil
	}
	return m.changeDriver(func(host *gpus.Driver) {
		for _, u := range job.Uses {
			app := gpus.App{PID: int(p.PID), Start: uint64(p.start), Device: int(u.Device), Name: cmd.Args[0], Load: u.Load}
			if u.MiB >= 0 {
				app.UsedMiB = &u.MiB
			}
			host.Apps = append(host.Apps, app)
		}
	})
}

// Process is a job that was started: a child of this process, which reaps it as soon as it ends.
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

// Running says whether the process has not ended yet. One that has ended may be a zombie for a moment.
func (p *Process) Running() bool {
	if stat, err := (proc.FS{}).Stat(p.PID); err == nil && stat.Start == p.start && !stat.Gone() {
		return true
	}
	<-p.ended
	return false
}

// EndedBy is the signal that ended the process; 0 while it runs, and when it ended by itself.
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

// end signals through the pidfd of os.Process, so never a process that got the same PID later.
func (p *Process) end() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end job %d: %w", p.PID, err)
	}
	<-p.ended
	return nil
}
