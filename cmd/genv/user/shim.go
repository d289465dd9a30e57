package user

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/cmd/genv/shell/docker"
	"github.com/seed-3119e985/genv/cmd/genv/shell/smi"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

// RunShim runs nvidia-smi or docker within the environment, and returns the exit status.
func RunShim(ctx context.Context, with command.Program, name string, args []string) int {
	p := &userCommands{with}
	status, err := p.startShim(ctx, name, args)
	if err == nil {
		return status
	}
	p.Warn("genv: " + err.Error())
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return exitNotFound
	case name == "docker":
		return docker.FailedStatus
	}
	return command.ExitFailed
}

func (p *userCommands) startShim(ctx context.Context, name string, args []string) (int, error) {
	program, err := p.findReal(name)
	if err != nil {
		return 0, err
	}
	who := p.person()
	bypass := who.eid == "" || p.Getenv("GENV_BYPASS") == "1"
	if name == "docker" {
		return 0, docker.Shim{
			Real: program, Args: args, Environ: os.Environ(), Bypass: bypass, Stderr: p.Err, Exec: syscall.Exec,
			Environment: func() (docker.ContainerEnvironment, error) { return who.container(ctx) },
		}.Run()
	}
	return smi.Shim{
		Real: program, Args: args, Environ: os.Environ(), Bypass: bypass, Stdout: p.Out, Stderr: p.Err,
		Exec: syscall.Exec,
		View: func() (smi.View, error) {
			if len(args) == 0 { // for a person
				p.adviseOfIndices(who)
			}
			return who.view(ctx)
		},
	}.Run(ctx)
}

func (p *userCommands) findReal(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return shell.FindReal(name, p.Getenv("PATH"), self)
}

func (w *hostUser) container(ctx context.Context) (docker.ContainerEnvironment, error) {
	files, env, err := w.here(ctx)
	if err != nil {
		return docker.ContainerEnvironment{}, err
	}
	token := ""
	if env.UID == w.uid {
		token = w.containerToken(ctx, w.eid)
	}
	return docker.ContainerEnvironment{
		EID: w.eid, Name: env.Config.Name, Devices: w.containerDevices(&files), Token: token,
	}, nil
}

func (w *hostUser) containerDevices(files *state.Files) (devices []docker.Device) {
	now := change.Current(files, w.eid)
	uuids, _ := w.uuids(&now) // root's daemon also knows the indices
	for i, index := range now.Now {
		names := now.InstancesOf(index)
		switch {
		case names != nil:
		case uuids != nil:
			names = uuids[i : i+1]
		default:
			names = []snapshot.GPUUUID{""}
		}
		for _, uuid := range names {
			devices = append(devices, docker.Device{Index: index, UUID: uuid})
		}
	}
	return devices
}

// containerToken identifies the user to genv's container runtime; empty without root's service.
func (w *hostUser) containerToken(ctx context.Context, eid snapshot.EnvID) string {
	if dir, err := w.Store.OwnedDir(); dir == "" || err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	token, _ := w.Service.Token(ctx, eid) // without one, the container counts for no user
	return token
}

func (w *hostUser) view(ctx context.Context) (smi.View, error) {
	files, _, err := w.here(ctx)
	view := smi.View{Owns: w.owns, Renumbered: w.Machine.Hardware.Restricted(w.Machine.Now())}
	var known []hardware.BusDevice
	if err == nil && view.Renumbered {
		known, err = w.Machine.Hardware.Known()
	}
	for i := range files.Devices {
		index, a := files.Devices[i].Index, files.Devices[i].Attachment(w.eid)
		if a == nil {
			continue
		}
		d := smi.Device{Index: index, Capacity: a.GPUMemory}
		if at := slices.IndexFunc(known, func(k hardware.BusDevice) bool { return k.Index == index }); at >= 0 {
			d.UUID, d.Address = known[at].UUID, known[at].Address
		}
		view.Devices = append(view.Devices, d)
	}
	return view, err
}

// owns reports whether a process was started in this environment; false if it can't be read.
func (w *hostUser) owns(pid snapshot.PID) bool {
	eid, _, err := w.Machine.Proc.Environ(pid, "GENV_ENVIRONMENT_ID")
	return err == nil && snapshot.EnvID(eid) == w.eid
}

func (p *userCommands) dockerCommand() *cli.Command {
	return &cli.Command{
		Name: "docker", Usage: "run docker; a container that it starts gets GPUs and an environment of its own",
		ArgsUsage:       "run|create [--gpus N] [--gpu-memory SIZE] [--over-subscribe] [OPTION…] IMAGE [COMMAND…]",
		SkipFlagParsing: true, // the rest is docker's
		Action:          p.outsideContainers(p.docker),
	}
}

func (p *userCommands) docker(c *cli.Context) error {
	words := c.Args().Slice()
	if len(words) == 0 || words[0] == "--help" || words[0] == "-h" {
		return cli.ShowSubcommandHelp(c)
	}
	path, err := p.findReal("docker")
	if err != nil {
		return p.notStarted("docker", err)
	}
	who := p.person()
	over := p.Getenv("GENV_ALLOW_OVER_SUBSCRIPTION")
	err = docker.Shim{Real: path, Args: words, Environ: os.Environ(), Stderr: p.Err, Exec: syscall.Exec}.
		RunOwn(over != "" && over != "0", func() string { return who.containerToken(c.Context, "") })
	return &command.ExitError{Code: docker.FailedStatus, Err: err}
}
