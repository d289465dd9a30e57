package user

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *program) deactivateCommand() *cli.Command {
	old := ""
	return &cli.Command{
		Name:   "deactivate",
		Usage:  "leave the environment, which ends with its last process",
		Flags:  []cli.Flag{shellFlag(&old)},
		Action: p.outsideContainers(func(c *cli.Context) error { return p.deactivate(c, old) }),
	}
}

// deactivate also works in a shell that isn't registered, because it was started
// from an active one or its environment has ended: it removes the variables.
func (p *program) deactivate(c *cli.Context, old string) error {
	who := p.person()
	_, inactive := who.active(c.Context)
	caller, err := p.callerOf(old, who, shell.Shell143{Environ: p.Getenv})
	if errors.Is(inactive, errNotActive) && err == nil {
		inactive, err = who.unregistered(c.Context, caller.PID)
	}
	if err := cmp.Or(inactive, err); err != nil {
		return err
	}
	if err := p.leave(c.Context, who, change.Leave{PID: caller.PID, Own: true}); err != nil {
		return err
	}
	return caller.Apply(shell.Deactivate())
}

// leave removes a process from its environment, and warns if other processes still run in that.
func (p *program) leave(ctx context.Context, who *hostUser, l change.Leave) error {
	left, err := who.Change(ctx, change.Change{Leave: &l})
	if len(left.Remaining) > 0 {
		p.Warn(fmt.Sprintf("Environment %s and its GPUs remain until its processes end: %s",
			text.Shown(string(left.EID)), who.processes(left.Remaining)))
	}
	return err
}

// processes lists PIDs, with the names of the processes that this user may see: 4242 (python), 4243.
func (w *hostUser) processes(pids []snapshot.PID) string {
	list := make([]string, len(pids))
	for i, pid := range pids {
		list[i] = fmt.Sprint(pid)
		if stat, err := w.Machine.Proc.Stat(pid); err == nil {
			list[i] += " (" + text.Shown(stat.Name) + ")"
		}
	}
	return strings.Join(list, ", ")
}

// unregistered is errNotActive, unless the shell is registered although it has lost the variable with its environment.
func (w *hostUser) unregistered(ctx context.Context, pid snapshot.PID) (inactive, err error) {
	files, err := w.StateFiles(ctx)
	if err != nil || files.EnvironmentOf(pid) != nil {
		return nil, err
	}
	return errNotActive, nil
}

func (p *program) statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "print whether this shell is in an environment, and in which", Action: p.status,
	}
}

func (p *program) status(c *cli.Context) error {
	who := p.person()
	eid, err := who.active(c.Context)
	if errors.Is(err, errNotActive) {
		_, err = fmt.Fprint(p.Out, "Environment is not active\n", p.capsText(c.Context))
		return err
	}
	if err != nil {
		return err
	}
	files, err := who.StateFiles(c.Context)
	if err != nil {
		return err
	}
	p.Warn(files.Warnings...)
	env, err := who.mine(&files, eid)
	if err != nil {
		fmt.Fprintln(p.Out, "Environment is not active")
		p.Warn(err.Error())
		return nil
	}
	p.adviseOfIndices(who)
	p.adviseOfOthers(who, activeOf(&files, eid))
	_, err = fmt.Fprint(p.Out, text.PrintableLines(statusText(env, files.AttachedTo(eid), p.capsText(c.Context))))
	return err
}

// statusText is 1.4.3's, with lines about caps; empty for none.
func statusText(env *snapshot.Environment, attached []snapshot.DeviceIndex, caps string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Environment is active (%s)\n", render.Name(string(env.EID)))
	if len(attached) == 0 {
		b.WriteString("Detached from GPUs\n")
	} else {
		fmt.Fprintf(&b, "Attached to GPUs at indices %s\n", text.JoinIndices(attached))
	}
	b.WriteString(caps)
	count := ""
	if env.Config.GPUs != nil {
		count = strconv.Itoa(*env.Config.GPUs)
	}
	fmt.Fprintf(&b, "\nConfiguration\n    Name: %s\n    Device count: %s\n    GPU memory capacity: %s\n\n",
		cmp.Or(render.Name(env.Config.Name), "N/A"), cmp.Or(count, "N/A"), cmp.Or(env.Config.GPUMemory.String(), "N/A"))
	return b.String()
}
