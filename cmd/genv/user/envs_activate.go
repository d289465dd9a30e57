package user

import (
	"fmt"
	"os"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
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

// environment is the one in which it is registered, or nil. A kernel is the caller's.
func (r member) environment(b *state.Files) *snapshot.Environment {
	if r.kernel != "" {
		return b.EnvironmentOfKernel(r.kernel, snapshot.UID(os.Getuid()))
	}
	return b.EnvironmentOf(r.pid)
}

func (p *program) envsActivate(c *cli.Context) error {
	r, err := memberOf(c)
	if err != nil {
		return err
	}
	who := p.person()
	e := change.Enter{EID: snapshot.EnvID(c.String("eid")), PID: r.pid, Kernel: r.kernel}
	if e.EID == "" && r.kernel != "" {
		return command.UsageError("missing --eid: only the environment of a process has a default ID")
	}
	var config snapshot.EnvConfig
	if err := environment.ReadSettings(c, &config); err != nil {
		return err
	}
	if c.IsSet("uid") {
		if err := who.checkUID(r, c.String("uid")); err != nil {
			return err
		}
	}
	e.Config, who.Unnamed = change.Config(config), snapshot.Username(c.String("username"))
	_, err = who.Change(c.Context, change.Change{Enter: &e})
	return err
}

// checkUID refuses a process that doesn't have the uid that --uid gives. One that only
// another user may register is refused anyway.
func (w *person) checkUID(r member, given string) error {
	uid := w.uid
	if r.pid != 0 {
		var err error
		if uid, err = w.Machine.Proc.UID(r.pid); err != nil {
			return err
		}
	}
	if given != fmt.Sprint(uid) && (w.uid == 0 || w.uid == uid) {
		return command.UsageError("--uid %s: the process belongs to uid %d", given, uid)
	}
	return nil
}

// envsDeactivate does nothing for a process without an environment: shells run it
// when they end.
func (p *program) envsDeactivate(c *cli.Context) error {
	r, err := memberOf(c)
	if err != nil {
		return err
	}
	who := p.person()
	return p.leave(c.Context, who, change.Leave{PID: r.pid, Kernel: r.kernel})
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
	changed, err := request.change(eid, &snapshot.EnvConfig{})
	if err == nil {
		_, err = who.changeIn(c.Context, eid, changed)
	}
	return err
}
