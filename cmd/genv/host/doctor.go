package host

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/checkup"
	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/guard"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *hostCommands) doctorCommand() *cli.Command {
	format, timeout := "", 10*time.Second
	return &cli.Command{
		Name:  "doctor",
		Usage: "check this machine as a GPU host: driver, state files, disk and so on; it changes nothing",
		Flags: []cli.Flag{
			command.FormatFlag(&format, "tui", "json"),
			command.Duration(&timeout, "timeout", "`TIME` for nvidia-smi, in seconds or as 500ms"),
		},
		Action: func(c *cli.Context) error { return p.doctorHere(c, format, timeout) },
	}
}

func (p *hostCommands) doctorHere(c *cli.Context, format string, timeout time.Duration) error {
	document := p.examine(c.Context, timeout)
	var err error
	if format == "json" {
		err = render.WriteJSON(p.Out, document)
	} else {
		err = checkup.WriteHost(p.Out, document, checkup.StyleOf(p.Program))
	}
	return cmp.Or(err, checkup.Exit(document.Status))
}

func (p *hostCommands) examine(ctx context.Context, timeout time.Duration) *doctor.HostDocument {
	options := disk.Config{Now: p.Now, RootDir: disk.RootDir(p.Getenv)}
	m := &doctor.Machine{
		SMI: localhost.NvidiaSMI(p.Getenv, timeout), Notes: disk.New(disk.Dir(p.Getenv), options), Run: runProgram,
		StateDir: disk.Dir(p.Getenv), RootDir: options.RootDir, Record: localhost.RootLog(p.Getenv),
		Proc: "/proc", SysRun: "/run", Genv: doctor.GenvProgram{Version: p.Version, Protocol: frame.Version},
		Restricted: localhost.Hardware(p.Getenv).Restricted(p.Now()), Guard: p.guardState(),
	}
	if self, err := os.Executable(); err == nil {
		m.Genv.Path = self
	}
	if p.SharedAccount != nil {
		m.Owner = snapshot.UID(os.Geteuid())
	}
	if os.Geteuid() == 0 && p.SharedAccount == nil {
		m.Trial = p.openHost().tryToEnd()
	}
	checks, system := m.Examine(ctx)
	return &doctor.HostDocument{
		Schema: doctor.Schema, Host: enforcelocal.Hostname(), Time: p.Now().UTC(), Root: os.Geteuid() == 0,
		Genv: m.Genv, System: system, Status: doctor.Overall(checks), Checks: checks, Guard: m.Guard,
	}
}

func (p *hostCommands) guardState() *doctor.GuardState {
	dir := disk.RunDir(p.Getenv)
	now := hardware.Catalog{Run: dir}.Guard(p.Now())
	if now == nil {
		return nil
	}
	g := &doctor.GuardState{Mode: now.Mode, Reason: now.Reason}
	if status, err := guard.ReadStatus(dir); err == nil && status.Order != nil {
		g.Ordered, g.By = snapshot.GuardMode(status.Order.Mode.String()), status.Order.By
		g.Renewed, g.Veto = status.Given, status.Veto
	}
	return g
}

func runProgram(ctx context.Context, program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() != nil { // killed
		err = text.Late(ctx.Err(), 0)
	}
	return out, err
}
