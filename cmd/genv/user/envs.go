package user

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *program) envsCommand() *cli.Command {
	eid := &cli.StringFlag{Name: "eid", Usage: "`ID` of the environment"}
	pid := &cli.StringFlag{Name: "pid", Usage: "`PID` of a process in it"}
	kernel := &cli.StringFlag{Name: "kernel-id", Usage: "`ID` of a Jupyter kernel in it"}
	return &cli.Command{
		Name:   "envs",
		Usage:  "list the environments of this host",
		Flags:  listFlags(),
		Action: p.envsPs,
		Subcommands: []*cli.Command{
			{Name: "ps", Usage: "list them", Flags: listFlags(), Action: p.envsPs},
			{
				Name: "activate", Usage: "register a process or a Jupyter kernel in an environment, which is created if it doesn't exist",
				Flags: append(environment.SettingFlags(), eid, pid, kernel, &cli.StringFlag{Name: "uid", Usage: "fail unless the process has this `UID`"},
					&cli.StringFlag{Name: "username", Usage: "the `NAME` of that user, if its account has none"}),
				Action: p.envsActivate,
			},
			{
				Name: "deactivate", Usage: "remove a process or a Jupyter kernel from its environment, which ends with its last one",
				Flags: []cli.Flag{pid, kernel}, Action: p.envsDeactivate,
			},
			{
				Name: "config", Usage: "show or change the configuration of an environment", ArgsUsage: "[gpus|gpu-memory|name] [VALUE]",
				Flags:  slices.Concat(configFlags(), []cli.Flag{eid}, valueFlags()),
				Action: p.envsConfig,
			},
			{Name: "find", Usage: "print the environment of a process or a Jupyter kernel", Flags: append(fileFlags(), pid, kernel), Action: p.envsFind},
			{
				Name: "query", Usage: "print facts about environments, one per line",
				Flags: append(fileFlags(), command.FormatFlag("tui", "csv", "json"), eid,
					environment.QueryFlag()),
				Action: p.envsQuery,
			},
		},
	}
}

func (p *program) envsPs(c *cli.Context) error {
	output := command.ReadOutput(c)
	files, err := p.environmentFiles(c)
	if err != nil {
		return err
	}
	if output.Format == "json" {
		return render.WriteJSON(p.Out, localEnvironmentsOf(&files))
	}
	t := output.Table(render.Col("ID", 8), render.Col("USER", 16), render.Col("NAME", 16), render.Col("CREATED", 21), render.Col("PID(S)", 0))
	for i := range files.Environments {
		e := &files.Environments[i]
		t.Add(output.Name(string(e.EID)), output.Name(owner(e.UID, string(e.Username))), output.Name(e.Config.Name), output.Age(e.Creation, p.Now()), environment.JoinPIDs(e.PIDs))
	}
	return t.Write(p.Out)
}

// LocalEnvironments is the JSON of `genv envs`; docs/json.md describes it.
type LocalEnvironments struct {
	Schema       string             `json:"schema"`
	Environments []localEnvironment `json:"environments"`
}

type localEnvironment struct {
	environment.Document
	KernelIDs     []string               `json:"kernel_ids"`     // Jupyter kernels that are active in it
	Devices       []snapshot.DeviceIndex `json:"devices"`        // the indices of those that are attached to it
	OwnerMismatch bool                   `json:"owner_mismatch"` // the kernel has another owner than the state files
}

func localEnvironmentsOf(b *state.Files) LocalEnvironments {
	document := LocalEnvironments{Schema: "genv.envs/1", Environments: []localEnvironment{}}
	for i := range b.Environments {
		e := &b.Environments[i]
		document.Environments = append(document.Environments, localEnvironment{
			Document:      environment.DocumentOf(e),
			KernelIDs:     append([]string{}, e.KernelIDs...),
			Devices:       append([]snapshot.DeviceIndex{}, b.AttachedTo(e.EID)...),
			OwnerMismatch: e.OwnerMismatch,
		})
	}
	return document
}

func (p *program) envsQuery(c *cli.Context) error {
	queries := c.StringSlice("query")
	output := command.ReadOutput(c)
	files, err := p.environmentFiles(c)
	if err != nil {
		return err
	}
	if c.IsSet("eid") {
		eid := snapshot.EnvID(c.String("eid")) // an unknown one is no error, as in 1.4.3
		files.Environments = slices.DeleteFunc(files.Environments, func(e snapshot.Environment) bool { return e.EID != eid })
	}
	if output.Format == "json" {
		return render.WriteJSON(p.Out, localEnvironmentsOf(&files))
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	var rows [][]string
	for i := range files.Environments {
		rows = append(rows, environment.Facts(queries, hostname, &files.Environments[i]))
	}
	return render.WriteCSV(p.Out, rows)
}

// errOnlyRootResets protects the other users: the state files are those of all.
var errOnlyRootResets = errors.New("--reset clears the state of all users: only root may, with `sudo genv envs --reset` or `sudo genv devices --reset`")

// deviceFiles are the state files for a command that lists devices.
func (p *program) deviceFiles(c *cli.Context) (state.Files, error) {
	who := p.person()
	if command.Bool(c, "reset") {
		if who.uid != 0 {
			return state.Files{}, errOnlyRootResets
		}
		found, err := who.Machine.ListDevices(c.Context)
		if err != nil {
			return state.Files{}, err
		}
		if err := who.Store.ResetDevices(c.Context, found); err != nil {
			return state.Files{}, err
		}
	}
	files, err := who.Devices(c.Context, command.Bool(c, "no-cleanup"))
	p.Warn(files.Warnings...)
	return files, err
}

// environmentFiles are the state files for a command that lists environments.
func (p *program) environmentFiles(c *cli.Context) (state.Files, error) {
	who := p.person()
	if command.Bool(c, "reset") {
		if who.uid != 0 {
			return state.Files{}, errOnlyRootResets
		}
		if err := who.Store.ResetEnvironments(c.Context); err != nil {
			return state.Files{}, err
		}
	}
	read := who.StateFiles
	if command.Bool(c, "no-cleanup") {
		read = who.RawStateFiles
	}
	files, err := read(c.Context)
	p.Warn(files.Warnings...)
	for i := range files.Environments {
		if e := &files.Environments[i]; e.OwnerMismatch {
			p.Warn(fmt.Sprintf("environment %s is registered for %s, but that uid has another name or its processes another owner",
				text.Shown(string(e.EID)), shownOwner(e)))
		}
	}
	return files, err
}

// joinTarget is the process or the Jupyter kernel that --pid or --kernel-id names.
type joinTarget struct {
	pid    snapshot.PID
	kernel string
}

func memberOf(c *cli.Context) (joinTarget, error) {
	if c.IsSet("pid") == c.IsSet("kernel-id") {
		return joinTarget{}, command.UsageError("write either --pid or --kernel-id")
	}
	if c.IsSet("kernel-id") {
		if c.String("kernel-id") == "" {
			return joinTarget{}, command.UsageError("--kernel-id is empty")
		}
		return joinTarget{kernel: c.String("kernel-id")}, nil
	}
	pid, err := strconv.ParseInt(c.String("pid"), 10, 32)
	if err != nil || pid < 1 {
		return joinTarget{}, command.UsageError("--pid %q is not a process ID", c.String("pid"))
	}
	return joinTarget{pid: snapshot.PID(pid)}, nil
}

// environment is the one in which it is registered, or nil. A kernel is the caller's.
func (r joinTarget) environment(b *state.Files) *snapshot.Environment {
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
	e.Config, who.Unnamed = config, snapshot.Username(c.String("username"))
	_, err = who.Change(c.Context, change.Change{Enter: &e})
	return err
}

// checkUID refuses a process that doesn't have the uid that --uid gives. One that only
// another user may register is refused anyway.
func (w *hostUser) checkUID(r joinTarget, given string) error {
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
