package user

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type shellOptions struct {
	init, ok, deinit, reattach, reconfigure bool
	shell                                   string
}

func (p *userCommands) shellCommand() *cli.Command {
	o := new(shellOptions)
	return &cli.Command{
		Name: "shell", Usage: `print code for a shell to evaluate: eval "$(genv shell --init)"`,
		Flags: []cli.Flag{
			command.Bool(&o.init, "init", "print the code that initialises a shell"),
			command.Bool(&o.ok, "ok", "say that this shell is initialised"),
			command.Bool(&o.deinit, "deinit", "print the code that removes what --init defined"),
			command.Bool(&o.reattach, "reattach", "print the code that sets the variables of a shell to its GPUs"),
			command.Bool(&o.reconfigure, "reconfigure", "print the code that sets them to its configuration"),
			command.String(&o.shell, "shell", "for this shell, `bash|zsh`, instead of the one that runs this"),
		},
		Action: func(c *cli.Context) error { return p.shellCode(c, o) },
	}
}

// shellCode prints code for a shell, or, as 1.4.3 does, how to initialise one. The function of --init adds --ok.
func (p *userCommands) shellCode(c *cli.Context, o *shellOptions) error {
	switch {
	case o.ok:
		_, err := fmt.Fprintln(p.Out, "This shell is initialised. `genv status` says whether it is in an environment.")
		return err
	case o.init || o.deinit:
		return p.shellSetup(o)
	case o.reattach || o.reconfigure:
		return p.shellUpdate(c)
	case c.NumFlags() > 0:
		return command.UsageError("missing --init: add this line to your ~/.bashrc or ~/.zshrc: " +
			`command -v genv >/dev/null && eval "$(genv shell --init)"`)
	}
	_, err := fmt.Fprintln(p.Out, shell.ErrNotInitialised)
	return err
}

// shellUpdate prints all variables of the environment: setting one again does no harm.
func (p *userCommands) shellUpdate(c *cli.Context) error {
	who := p.person()
	files, env, err := who.here(c.Context)
	if err != nil {
		return err
	}
	now := change.Current(&files, env.EID)
	code, err := shell.Shell143{Environ: p.Getenv}.Render(shell.Update(p.visible(who, &now)))
	if err == nil {
		_, err = fmt.Fprint(p.Out, code)
	}
	return err
}

func (p *userCommands) shellSetup(o *shellOptions) error {
	kind, err := shell.ParseKind(cmp.Or(o.shell, p.callingShell()))
	if err != nil {
		return err
	}
	if !o.init {
		_, err = fmt.Fprintln(p.Out, shell.Deinit(kind))
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	code, err := shell.Init(shell.InitOptions{
		Kind: kind, Exe: exe, Shims: p.shims(), Notices: p.box().Path(ownUID()), NoticesRead: p.noticesRead(),
		Preactivate: shell.PreactivationFrom(p.Getenv),
	})
	if err == nil {
		_, err = fmt.Fprint(p.Out, code)
	}
	return err
}

// shims is the folder of this genv's shims; empty, after a warning, if it can't be made.
func (p *userCommands) shims() (dir string) {
	exe, err := os.Executable()
	if err == nil {
		dir, err = shell.ShimsDir(exe, p.Getenv)
	}
	if err == nil {
		err = shell.EnsureShims(dir, exe)
	}
	if err != nil {
		p.Warnf("genv: nvidia-smi and docker will show all GPUs: %v", err)
		return ""
	}
	return dir
}

// callingShell is the name of the program that runs genv. SHELL, the login shell, may be another.
func (p *userCommands) callingShell() string {
	fs := proc.FS{}
	parent, err := fs.Stat(snapshot.PID(os.Getppid()))
	for err == nil && slices.Contains([]string{"sudo", "su", "timeout", "setpriv", "strace"}, parent.Name) {
		parent, err = fs.Stat(parent.PPID)
	}
	if err != nil {
		return p.Getenv("SHELL")
	}
	return parent.Name
}

func (w *hostUser) guarded() bool { return w.Machine.Hardware.Guarded(w.Machine.Now()) }

// uuids are those of the devices if this host is guarded, or if some are attached by MIG instance; otherwise nil. CUDA
// reads a list of indices or of UUIDs, not of both.
func (w *hostUser) uuids(of *change.Result) ([]snapshot.GPUUUID, error) {
	if len(of.Now) == 0 || len(of.Instances) == 0 && !w.guarded() {
		return nil, nil
	}
	uuids := make([]snapshot.GPUUUID, len(of.Now))
	var known []hardware.BusDevice
	var err error
	for i, index := range of.Now {
		if parts := of.InstancesOf(index); parts != nil {
			uuids[i] = snapshot.GPUUUID(shell.JoinUUIDs(parts))
			continue
		}
		if known == nil {
			known, err = w.Machine.Hardware.Known()
		}
		if err != nil {
			return nil, err
		}
		own, ok := hardware.UUIDs(known, of.Now[i:i+1])
		if !ok {
			return nil, hardware.ErrNotPublished
		}
		uuids[i] = own[0]
	}
	return uuids, nil
}

// visible has UUIDs if they are needed. If they are unknown, it warns, and the shell gets indices.
func (p *userCommands) visible(who *hostUser, r *change.Result) shell.Active {
	uuids, err := who.uuids(r)
	if err != nil {
		p.Warnf("CUDA_VISIBLE_DEVICES needs UUIDs (with a guard or MIG), which are not known: %v", err)
	}
	return shell.Active{EID: r.EID, Config: r.Config, Devices: r.Now, UUIDs: uuids}
}

func onlyIndices(visible string) bool {
	return visible != "" && strings.Trim(visible, "0123456789,") == ""
}

// adviseOfIndices warns a shell that was activated before the guard came on: its programs count only GPUs that they may
// open.
func (p *userCommands) adviseOfIndices(who *hostUser) {
	if visible := p.Getenv("CUDA_VISIBLE_DEVICES"); onlyIndices(visible) && who.guarded() {
		p.Warnf("CUDA_VISIBLE_DEVICES of this shell is %s: since this host has a guard, it has to have "+
			"UUIDs: run genv attach --refresh", text.Quoted(visible, 80))
	}
}

func (p *userCommands) adviseOfOthers(who *hostUser, r change.Result) {
	visible, now := p.Getenv("CUDA_VISIBLE_DEVICES"), shell.Active{Devices: r.Now}
	switch {
	case strings.HasPrefix(visible, "GPU-"), strings.HasPrefix(visible, "MIG-"):
		now = p.visible(who, &r)
		if known := now.UUIDs != nil || len(now.Devices) == 0; known && visible != now.VisibleDevices() {
			p.Warn("CUDA_VISIBLE_DEVICES of this shell has other GPUs than its environment: run genv attach --refresh")
		}
	case (visible == "-1" || onlyIndices(visible)) && visible != now.VisibleDevices() && len(r.Instances) == 0:
		p.Warnf("CUDA_VISIBLE_DEVICES of this shell is %s, and that of its environment %s: run genv attach "+
			"--refresh", text.Quoted(visible, 80), now.VisibleDevices())
	}
}

type migInstance struct {
	snapshot.Instance
	of snapshot.DeviceIndex
}

// instances are the MIG instances of --mig. Which are free is decided again when they are attached.
func (w *hostUser) instances(c *cli.Context, mig string, eid snapshot.EnvID) ([]state.InstanceRequest, error) {
	if !c.IsSet("mig") {
		return nil, nil
	}
	devices, err := w.Machine.Instances(c.Context)
	if err != nil {
		return nil, err
	}
	files, err := w.StateFiles(c.Context)
	if err != nil {
		return nil, err
	}
	var all []migInstance
	for i := range devices {
		for _, instance := range devices[i].Instances {
			all = append(all, migInstance{instance, devices[i].Index})
		}
	}
	var requests []state.InstanceRequest
	for name := range strings.SplitSeq(mig, ",") {
		name = strings.TrimSpace(name)
		named := slices.DeleteFunc(slices.Clone(all), func(i migInstance) bool {
			return name == "" || string(i.UUID) != name && i.Profile != name
		})
		if len(named) == 0 {
			return nil, command.WrongFlag("mig", " %s: there is no such MIG instance or profile here; %s",
				text.Shown(name), listed(all))
		}
		at := slices.IndexFunc(named, func(i migInstance) bool {
			return string(i.UUID) == name || !isTaken(requests, i.UUID) && i.isFree(&files)
		})
		if at < 0 {
			return nil, &state.UnavailableError{Reason: "no MIG instance of profile " + text.Shown(name) + " is free"}
		}
		chosen := named[at]
		requests = append(requests, state.InstanceRequest{
			Index: chosen.of, UUID: chosen.UUID, Memory: chosen.Memory(),
			Shares: chosen.shares(all, &files, eid, requests),
		})
	}
	return requests, nil
}

func isTaken(taken []state.InstanceRequest, uuid snapshot.GPUUUID) bool {
	return slices.ContainsFunc(taken, func(r state.InstanceRequest) bool { return r.UUID == uuid })
}

// shares reports whether the environment has, or asks for, another compute instance of the same GPU instance, and so of
// the same memory.
func (i *migInstance) shares(
	all []migInstance, files *state.Files, eid snapshot.EnvID, others []state.InstanceRequest,
) bool {
	var has []snapshot.GPUUUID
	if d := files.Device(i.of); d != nil && d.Attachment(eid) != nil {
		has = d.Attachment(eid).Instances
	}
	return i.Pool != "" && slices.ContainsFunc(all, func(o migInstance) bool {
		return o.of == i.of && o.UUID != i.UUID && o.Pool == i.Pool &&
			(slices.Contains(has, o.UUID) || isTaken(others, o.UUID))
	})
}

func (i *migInstance) isFree(files *state.Files) bool {
	d := files.Device(i.of)
	return d == nil || !slices.ContainsFunc(d.Attachments, func(a snapshot.Attachment) bool {
		return len(a.Instances) == 0 || slices.Contains(a.Instances, i.UUID)
	})
}

func listed(all []migInstance) string {
	var names []string
	for _, i := range all {
		names = append(names, strings.TrimSpace(i.Profile+" "+string(i.UUID))+" of GPU "+i.of.String())
	}
	if names == nil {
		return "nvidia-smi lists no MIG instances"
	}
	return "there are " + strings.Join(names, ", ")
}
