package user

import (
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

type envsOptions struct {
	*userCommands
	stateOptions
	settings    environment.SettingFlags
	config      configOptions
	eid         string
	pid, kernel string
	uid         string
	username    snapshot.Username
	queries     []string
}

func (p *userCommands) envsCommand() *cli.Command {
	o := &envsOptions{userCommands: p}
	eid := command.String(&o.eid, "eid", "`ID` of the environment")
	pid := command.String(&o.pid, "pid", "`PID` of a process in it")
	kernel := command.String(&o.kernel, "kernel-id", "`ID` of a Jupyter kernel in it")
	return &cli.Command{
		Name: "envs", Usage: "list the environments of this host", Flags: o.listFlags(), Action: o.list,
		Subcommands: []*cli.Command{
			{Name: "ps", Usage: "list them", Flags: o.listFlags(), Action: o.list},
			{
				Name:  "activate",
				Usage: "register a process or a Jupyter kernel in an environment, which is created if it doesn't exist",
				Flags: append(o.settings.Flags(), eid, pid, kernel,
					command.String(&o.uid, "uid", "fail unless the process has this `UID`"),
					command.String(&o.username, "username", "the `NAME` of that user, if its account has none")),
				Action: o.activate,
			},
			{
				Name:  "deactivate",
				Usage: "remove a process or a Jupyter kernel from its environment, which ends with its last one",
				Flags: []cli.Flag{pid, kernel}, Action: o.deactivate,
			},
			{
				Name: "config", ArgsUsage: "[gpus|gpu-memory|name] [VALUE]",
				Usage: "show or change the configuration of an environment",
				Flags: append([]cli.Flag{o.config.clearFlag(), eid}, o.config.valueFlags()...), Action: o.configure,
			},
			{
				Name: "find", Usage: "print the environment of a process or a Jupyter kernel",
				Flags: append(o.fileFlags(), pid, kernel), Action: o.find,
			},
			{
				Name: "query", Usage: "print facts about environments, one per line",
				Flags: append(o.fileFlags(), command.FormatFlag(&o.Format, "tui", "csv", "json"), eid,
					environment.QueriesOn("").Flag(&o.queries)),
				Action: o.query,
			},
		},
	}
}

func (o *envsOptions) list(c *cli.Context) error {
	files, err := o.files(c)
	if err != nil {
		return err
	}
	if o.Format == "json" {
		return render.WriteJSON(o.Out, localEnvironmentsOf(&files))
	}
	t := o.Table("ID:8", "USER:16", "NAME:16", "CREATED:21", "PID(S)")
	for i := range files.Environments {
		e := &files.Environments[i]
		t.Add(o.Name(string(e.EID)), o.Name(owner(e.UID, string(e.Username))), o.Name(e.Config.Name),
			o.Age(e.Creation, o.Now()), environment.JoinPIDs(e.PIDs))
	}
	return t.Write(o.Out)
}

// LocalEnvironments is the JSON of `genv envs`.
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

func (o *envsOptions) query(c *cli.Context) error {
	files, err := o.files(c)
	if err != nil {
		return err
	}
	if c.IsSet("eid") { // an unknown one isn't an error, as in 1.4.3
		isOther := func(e snapshot.Environment) bool { return string(e.EID) != o.eid }
		files.Environments = slices.DeleteFunc(files.Environments, isOther)
	}
	if o.Format == "json" {
		return render.WriteJSON(o.Out, localEnvironmentsOf(&files))
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	return render.WriteCSV(o.Out, environment.QueriesOn(hostname).Rows(o.queries, files.Environments))
}

func (o *envsOptions) files(c *cli.Context) (state.Files, error) {
	who := o.person()
	if err := o.clear(c.Context, who, state.Envs); err != nil {
		return state.Files{}, err
	}
	read := who.StateFiles
	if o.noCleanup {
		read = who.RawStateFiles
	}
	files, err := read(c.Context)
	o.Warn(files.Warnings...)
	for i := range files.Environments {
		if e := &files.Environments[i]; e.OwnerMismatch {
			o.Warnf("environment %s is registered for %s, but that uid has another name or its processes "+
				"another owner", text.Shown(string(e.EID)), shownOwner(e))
		}
	}
	return files, err
}

func (o *envsOptions) member(c *cli.Context) (change.Leave, error) {
	switch {
	case c.IsSet("pid") == c.IsSet("kernel-id"):
		return change.Leave{}, command.UsageError("write either --pid or --kernel-id")
	case c.IsSet("kernel-id") && o.kernel == "":
		return change.Leave{}, command.WrongFlag("kernel-id", " is empty")
	case c.IsSet("kernel-id"):
		return change.Leave{Kernel: o.kernel}, nil
	}
	pid, err := strconv.ParseInt(o.pid, 10, 32)
	if err != nil || pid < 1 {
		return change.Leave{}, command.WrongFlag("pid", " %q is not a process ID", o.pid)
	}
	return change.Leave{PID: snapshot.PID(pid)}, nil
}

func (o *envsOptions) activate(c *cli.Context) error {
	r, err := o.member(c)
	if err != nil {
		return err
	}
	who := o.person()
	e := change.Enter{EID: snapshot.EnvID(o.eid), PID: r.PID, Kernel: r.Kernel}
	if e.EID == "" && r.Kernel != "" {
		return command.UsageError("missing --eid: only the environment of a process has a default ID")
	}
	if err := o.settings.Read(c, &e.Config); err != nil {
		return err
	}
	if c.IsSet("uid") {
		if err := who.checkUID(r.PID, o.uid); err != nil {
			return err
		}
	}
	who.Unnamed = o.username
	_, err = who.Change(c.Context, change.Change{Enter: &e})
	return err
}

// checkUID refuses a process of another uid than --uid. The change refuses a process that only another user may
// register.
func (w *hostUser) checkUID(pid snapshot.PID, given string) error {
	uid, err := w.uid, error(nil)
	if pid != 0 {
		uid, err = w.Machine.Proc.UID(pid)
	}
	if err != nil {
		return err
	}
	if given != fmt.Sprint(uid) && (w.uid == 0 || w.uid == uid) {
		return command.WrongFlag("uid", " %s: the process belongs to uid %d", given, uid)
	}
	return nil
}

// deactivate ignores a process without an environment: shells run it when they end.
func (o *envsOptions) deactivate(c *cli.Context) error {
	r, err := o.member(c)
	if err != nil {
		return err
	}
	return o.leave(c.Context, o.person(), r)
}

func (o *envsOptions) find(c *cli.Context) error {
	r, err := o.member(c)
	if err != nil {
		return err
	}
	files, err := o.files(c)
	if err != nil {
		return err
	}
	env := files.EnvironmentOf(r.PID)
	if r.Kernel != "" { // of the caller
		env = files.EnvironmentOfKernel(r.Kernel, snapshot.UID(os.Getuid()))
	}
	if env == nil {
		return nil // prints nothing, as 1.4.3: programs test for that
	}
	_, err = fmt.Fprintln(o.Out, text.PrintableLines(string(env.EID)))
	return err
}

func (o *envsOptions) configure(c *cli.Context) error {
	wanted := &o.config
	if err := wanted.request(c); err != nil {
		return err
	}
	who := o.person()
	eid, err := who.named(c, o.eid)
	if err != nil {
		return err
	}
	if !wanted.changes() {
		return o.showOrSave(c.Context, who, eid, wanted)
	}
	_, err = who.changeIn(c.Context, eid, wanted.change(eid))
	return err
}
