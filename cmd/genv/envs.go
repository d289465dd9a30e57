package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
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
				Flags:  append(settingFlags(), eid, pid, kernel, &cli.StringFlag{Name: "uid", Usage: "`UID` that the process is expected to have"}),
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
					&cli.StringSliceFlag{Name: "query", Usage: "`WHAT` to print, several values allowed: " + strings.Join(queryNames(), " ")}),
				Action: p.plainly(p.envsQuery),
			},
		},
	}
}

// environmentBooks are the state files for a command that lists environments. They
// are checked against the names that the system has for users, which the
// commands of every prompt have no time for.
func (p *program) environmentBooks(c *cli.Context) (state.Books, error) {
	store := state.New(state.Dir(p.getenv), state.Options{Now: p.now, Root: state.Root(p.getenv), Username: state.Users{}.Username})
	if given(c, "reset").Bool("reset") {
		if os.Getuid() != 0 {
			return state.Books{}, errResetRoot
		}
		if err := store.ResetEnvironments(c.Context); err != nil {
			return state.Books{}, err
		}
	}
	read := (&host{store: store}).books
	if given(c, "no-cleanup").Bool("no-cleanup") {
		read = (&host{store: store}).rawBooks
	}
	books, err := read(c.Context)
	p.warn(books.Warnings)
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
		return refuseUnknown(c)
	}
	format, err := formatOf(c, "tui", "csv", "json")
	if err != nil {
		return err
	}
	books, err := p.environmentBooks(c)
	if err != nil {
		return err
	}
	if format == "json" {
		return writeJSON(p.out, localEnvironmentsOf(&books))
	}
	t := &table{
		columns:  []column{{"ID", 8}, {"USER", 16}, {"NAME", 16}, {"CREATED", 21}, {"PID(S)", 0}},
		noHeader: given(c, "no-header").Bool("no-header"),
	}
	timestamp := given(c, "timestamp").Bool("timestamp")
	for i := range books.Environments {
		e := &books.Environments[i]
		t.add(shownName(format, string(e.EID)), shownName(format, owner(e)), shownName(format, e.Config.Name), p.moment(e.Creation, timestamp), environmentQueries["pids"]("", e))
	}
	return t.write(p.out, format)
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

// localEnvironments is the JSON of `genv envs`; docs/json.md describes it.
type localEnvironments struct {
	Schema       string             `json:"schema"`
	Environments []localEnvironment `json:"environments"`
}

type localEnvironment struct {
	environmentDocument
	KernelIDs     []string               `json:"kernel_ids"`
	Devices       []snapshot.DeviceIndex `json:"devices"`
	OwnerMismatch bool                   `json:"owner_mismatch"`
}

func localEnvironmentsOf(b *state.Books) localEnvironments {
	document := localEnvironments{Schema: "genv.envs/1", Environments: []localEnvironment{}}
	for i := range b.Environments {
		e := &b.Environments[i]
		document.Environments = append(document.Environments, localEnvironment{
			environmentDocument: environmentDocumentOf(e),
			KernelIDs:           append([]string{}, e.KernelIDs...),
			Devices:             append([]snapshot.DeviceIndex{}, b.AttachedTo(e.EID)...),
			OwnerMismatch:       e.OwnerMismatch,
		})
	}
	return document
}

func (p *program) envsQuery(c *cli.Context) error {
	if err := refuseArguments(c); err != nil {
		return err
	}
	queries := c.StringSlice("query")
	if err := checkQueries(queries); err != nil {
		return err
	}
	format, err := formatOf(c, "tui", "csv", "json")
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
		return writeJSON(p.out, localEnvironmentsOf(&books))
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	t := &table{noHeader: true}
	for i := range books.Environments {
		row := make([]string, len(queries))
		for j, q := range queries {
			row[j] = environmentQueries[q](hostname, &books.Environments[i])
		}
		t.add(row...)
	}
	return t.writeCSV(p.out)
}
