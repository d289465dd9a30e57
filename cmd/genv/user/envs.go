package user

import (
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/cmd/genv/render"
)

func (p *program) envsCommand() *cli.Command {
	eid := &cli.StringFlag{Name: "eid", Usage: "`ID` of the environment"}
	pid := &cli.StringFlag{Name: "pid", Usage: "`PID` of a process in it"}
	kernel := &cli.StringFlag{Name: "kernel-id", Usage: "`ID` of a Jupyter kernel in it"}
	return &cli.Command{
		Name:   "envs",
		Usage:  "list the environments of this host",
		Flags:  bookFlags(),
		Action: p.plainly(p.envsPs),
		Subcommands: []*cli.Command{
			{Name: "ps", Usage: "list them", Flags: bookFlags(), Action: p.plainly(p.envsPs)},
			{
				Name: "activate", Usage: "register a process or a Jupyter kernel in an environment, which begins with it if it is new",
				Flags:  append(environment.SettingFlags(), eid, pid, kernel, &cli.StringFlag{Name: "uid", Usage: "`UID` that the process is expected to have"}),
				Action: p.plainly(p.envsActivate),
			},
			{
				Name: "deactivate", Usage: "take a process or a Jupyter kernel out of its environment, which ends with its last one",
				Flags: []cli.Flag{pid, kernel}, Action: p.plainly(p.envsDeactivate),
			},
			{
				Name: "config", Usage: "show or change the configuration of an environment", ArgsUsage: "[gpus|gpu-memory|name] [VALUE]",
				Flags: append(configFlags(), eid), Action: p.plainly(p.envsConfig),
			},
			{Name: "find", Usage: "print the environment of a process or a Jupyter kernel", Flags: []cli.Flag{pid, kernel}, Action: p.plainly(p.envsFind)},
			{
				Name: "query", Usage: "print facts about environments, one a line",
				Flags: append(bookFlags(), eid,
					&cli.StringSliceFlag{Name: "query", Usage: "`WHAT` to print, several values allowed: " + strings.Join(environment.QueryNames(), " ")}),
				Action: p.plainly(p.envsQuery),
			},
		},
	}
}

// environmentBooks are the state files for a command that lists environments. They
// are checked against the names that the system has for users, which the
// commands of every prompt have no time for.
func (p *program) environmentBooks(c *cli.Context) (state.Files, error) {
	store := state.New(state.Dir(p.Getenv), state.StoreOptions{Now: p.Now, RootDir: state.RootDir(p.Getenv), Username: state.Users{}.Username})
	if command.Given(c, "reset").Bool("reset") {
		if os.Getuid() != 0 {
			return state.Files{}, errResetRoot
		}
		if err := store.ResetEnvironments(c.Context); err != nil {
			return state.Files{}, err
		}
	}
	read := (&localhost.Host{Store: store}).StateFiles
	if command.Given(c, "no-cleanup").Bool("no-cleanup") {
		read = (&localhost.Host{Store: store}).RawStateFiles
	}
	books, err := read(c.Context)
	p.Warn(books.Warnings...)
	for i := range books.Environments {
		if e := &books.Environments[i]; e.OwnerMismatch {
			p.warn([]string{fmt.Sprintf("environment %s is registered for %s, but the kernel says otherwise of that uid or of its processes",
				snapshot.Shown(string(e.EID)), shownOwner(e))})
		}
	}
	return books, err
}

func (p *program) envsPs(c *cli.Context) error {
	if c.Args().Present() {
		return command.RefuseUnknown(c)
	}
	format, err := command.FormatOf(c, "tui", "csv", "json")
	if err != nil {
		return err
	}
	books, err := p.environmentBooks(c)
	if err != nil {
		return err
	}
	if format == "json" {
		return render.WriteJSON(p.Out, localEnvironmentsOf(&books))
	}
	t := &render.Table{
		Columns:  []render.Column{render.Col("ID", 8), render.Col("USER", 16), render.Col("NAME", 16), render.Col("CREATED", 21), render.Col("PID(S)", 0)},
		NoHeader: command.Given(c, "no-header").Bool("no-header"),
	}
	timestamp := command.Given(c, "timestamp").Bool("timestamp")
	for i := range books.Environments {
		e := &books.Environments[i]
		t.Add(render.ShownName(format, string(e.EID)), render.ShownName(format, owner(e)), render.ShownName(format, e.Config.Name), environment.Creation(e.Creation, p.Now(), timestamp), environment.Queries["pids"]("", e))
	}
	return t.Write(p.Out, format)
}

// owner is alice(1001), or the uid alone where it has no name.
func owner(e *snapshot.Environment) string {
	if e.Username == "" {
		return fmt.Sprint(e.UID)
	}
	return fmt.Sprintf("%s(%d)", e.Username, e.UID)
}

// shownOwner is owner for a sentence.
func shownOwner(e *snapshot.Environment) string {
	if e.Username == "" {
		return owner(e)
	}
	return fmt.Sprintf("%s(%d)", snapshot.Shown(string(e.Username)), e.UID)
}

// LocalEnvironments is the JSON of `genv envs`; docs/json.md describes it.
type LocalEnvironments struct {
	Schema       string             `json:"schema"`
	Environments []localEnvironment `json:"environments"`
}

type localEnvironment struct {
	environment.Document
	KernelIDs     []string               `json:"kernel_ids"`
	Devices       []snapshot.DeviceIndex `json:"devices"`
	OwnerMismatch bool                   `json:"owner_mismatch"`
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
	if err := command.RefuseArguments(c); err != nil {
		return err
	}
	queries := c.StringSlice("query")
	if err := environment.CheckQueries(queries); err != nil {
		return err
	}
	format, err := command.FormatOf(c, "tui", "csv", "json")
	if err != nil {
		return err
	}
	books, err := p.environmentBooks(c)
	if err != nil {
		return err
	}
	if c.IsSet("eid") {
		env := books.Environment(snapshot.EnvID(c.String("eid")))
		if env == nil {
			return fmt.Errorf("%w: %q; `genv envs` lists the active ones", state.ErrNoEnvironment, c.String("eid"))
		}
		books.Environments = []snapshot.Environment{*env}
	}
	if format == "json" {
		return render.WriteJSON(p.Out, localEnvironmentsOf(&books))
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	t := &render.Table{NoHeader: true}
	for i := range books.Environments {
		row := make([]string, len(queries))
		for j, q := range queries {
			row[j] = environment.Queries[q](hostname, &books.Environments[i])
		}
		t.Add(row...)
	}
	return t.WriteCSV(p.Out)
}
