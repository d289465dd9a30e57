package user

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// member is the process or the Jupyter kernel that --pid or --kernel-id names.
type member struct {
	pid    snapshot.PID
	kernel string
}

func memberOf(c *cli.Context) (member, error) {
	if c.IsSet("pid") == c.IsSet("kernel-id") {
		return member{}, command.UsageError("write either --pid or --kernel-id")
	}
	if c.IsSet("kernel-id") {
		if c.String("kernel-id") == "" {
			return member{}, command.UsageError("--kernel-id is empty")
		}
		return member{kernel: c.String("kernel-id")}, nil
	}
	pid, err := strconv.ParseInt(c.String("pid"), 10, 32)
	if err != nil || pid < 1 {
		return member{}, command.UsageError("--pid %q is not a process ID", c.String("pid"))
	}
	return member{pid: snapshot.PID(pid)}, nil
}

// environment is the one in which it is registered, or nil.
func (r member) environment(b *state.Files) *snapshot.Environment {
	if r.kernel != "" {
		return b.EnvironmentOfKernel(r.kernel)
	}
	return b.EnvironmentOf(r.pid)
}

func (p *program) envsActivate(c *cli.Context) error {
	r, err := memberOf(c)
	if err != nil {
		return err
	}
	who := p.person()
	a := state.Activation{EID: snapshot.EnvID(c.String("eid")), PID: r.pid, KernelID: r.kernel, At: snapshot.DateOf(p.Now())}
	if a.EID == "" && r.kernel != "" {
		return command.UsageError("missing --eid: only the environment of a process has a default ID")
	}
	if err := environment.ReadSettings(c, &a.Config); err != nil {
		return err
	}
	if err := who.identify(c.Context, &a); err != nil {
		return err
	}
	if c.IsSet("uid") && c.String("uid") != fmt.Sprint(a.UID) {
		return command.UsageError("--uid %s: the process belongs to uid %d", c.String("uid"), a.UID)
	}
	a.Username = cmp.Or(a.Username, snapshot.Username(c.String("username"))) // the account's name, if it has one
	_, err = who.enter(c.Context, &entry{Activation: a})
	return err
}

// envsDeactivate does nothing for a process without an environment: shells run it
// when they end.
func (p *program) envsDeactivate(c *cli.Context) error {
	r, err := memberOf(c)
	if err != nil {
		return err
	}
	who := p.person()
	return p.leave(c.Context, who, func(b *state.Files) (snapshot.EnvID, error) {
		env := r.environment(b)
		if env == nil {
			return "", nil
		}
		eid := env.EID
		if _, err := who.mine(b, eid); err != nil {
			return "", err
		}
		if r.kernel != "" {
			b.DeactivateKernel(r.kernel)
		} else {
			b.Deactivate(r.pid)
		}
		return eid, nil
	})
}

func (p *program) envsFind(c *cli.Context) error {
	r, err := memberOf(c)
	if err != nil {
		return err
	}
	files, err := p.environmentFiles(c)
	if err != nil {
		return err
	}
	env := r.environment(&files)
	if env == nil {
		return nil // prints nothing, as 1.4.3: programs ask so whether there is one
	}
	_, err = fmt.Fprintln(p.Out, text.PrintableLines(string(env.EID)))
	return err
}

func (p *program) envsConfig(c *cli.Context) error {
	request, err := readConfigRequest(c)
	if err != nil {
		return err
	}
	who := p.person()
	eid, err := who.named(c)
	if err != nil {
		return err
	}
	if !request.changes() {
		return p.showOrSave(c.Context, who, eid, request)
	}
	return who.Store.Update(c.Context, func(b *state.Files) error {
		env, err := who.mine(b, eid)
		if err != nil {
			return err
		}
		return reconfigure(b, env, request, &snapshot.EnvConfig{})
	})
}
