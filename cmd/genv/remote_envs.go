package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

func (p *program) remoteEnvsCommand() *cli.Command {
	return &cli.Command{
		Name:  "envs",
		Usage: "list the environments of every host",
		Flags: append(append(remoteFlags(), listFlags()...),
			&cli.BoolFlag{Name: "timestamp", Usage: "print the time of creation instead of the age"}),
		Action: p.remoteEnvs,
	}
}

// envsDocument is the JSON of `genv remote envs`; docs/json.md describes it.
type envsDocument struct {
	Schema string             `json:"schema"`
	Total  int                `json:"total"`
	Hosts  []hostEnvironments `json:"hosts"`
	Failed []failure          `json:"failed"`
	// Duplicates are names that are left out because they lead to the same machine as
	// another one.
	Duplicates []controller.Duplicate `json:"duplicates"`
}

type hostEnvironments struct {
	Host         string                `json:"host"`
	Environments []environmentDocument `json:"environments"`
}

type environmentDocument struct {
	EID            snapshot.EnvID    `json:"eid"`
	UID            snapshot.UID      `json:"uid"`
	User           snapshot.Username `json:"user"`
	Name           string            `json:"name"`
	Created        string            `json:"created"` // the host's wall clock, YYYY-MM-DDTHH:MM:SS
	GPUs           *int              `json:"gpus"`
	GPUMemoryBytes *int64            `json:"gpu_memory_bytes"`
	PIDs           []snapshot.PID    `json:"pids"`
}

func (p *program) remoteEnvs(c *cli.Context) error {
	f, format, err := p.openListing(c)
	if err != nil {
		return err
	}
	defer f.Close()
	results, duplicates := askOnce(c.Context, f, f.commands().Environments)
	f.bar.end()
	if format == "json" {
		err = writeJSON(p.out, envsDocumentOf(results, duplicates))
	} else {
		err = p.writeEnvs(c, results, format)
	}
	if err != nil {
		return err
	}
	return p.conclude(f, failuresOf(results), duplicates)
}

func envsDocumentOf(results []remote.Result[[]snapshot.Environment], duplicates []controller.Duplicate) envsDocument {
	document := envsDocument{Schema: "genv.remote.envs/1", Hosts: []hostEnvironments{}, Failed: failuresOf(results), Duplicates: append([]controller.Duplicate{}, duplicates...)}
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		host := hostEnvironments{Host: r.Host.Name, Environments: []environmentDocument{}}
		for i := range r.Value {
			host.Environments = append(host.Environments, environmentDocumentOf(&r.Value[i]))
		}
		document.Total += len(r.Value)
		document.Hosts = append(document.Hosts, host)
	}
	return document
}

func environmentDocumentOf(e *snapshot.Environment) environmentDocument {
	document := environmentDocument{
		EID: e.EID, UID: e.UID, User: e.Username, Name: e.Config.Name, Created: e.Creation.ISO(),
		GPUs: e.Config.GPUs, PIDs: append([]snapshot.PID{}, e.PIDs...),
	}
	if e.Config.GPUMemory.Known() {
		bytes := e.Config.GPUMemory.Bytes()
		document.GPUMemoryBytes = &bytes
	}
	return document
}

func (p *program) writeEnvs(c *cli.Context, results []remote.Result[[]snapshot.Environment], format string) error {
	t := &table{
		columns:  []column{{"HOST", 25}, {"ID", 8}, {"USER", 16}, {"NAME", 16}, {"CREATED", 0}},
		noHeader: c.Bool("no-header"),
	}
	hosts := 0
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		hosts++
		for _, e := range r.Value {
			t.add(r.Host.Name, shownName(format, string(e.EID)), shownName(format, string(e.Username)), shownName(format, e.Config.Name), p.moment(e.Creation, c.Bool("timestamp")))
		}
	}
	if err := t.write(p.out, format); err != nil || c.Bool("no-summary") {
		return err
	}
	_, err := fmt.Fprintf(p.out, "\nTotal %d environments on %d hosts\n", len(t.rows), hosts)
	return err
}

func (p *program) remoteQueryCommand() *cli.Command {
	return &cli.Command{
		Name:  "query",
		Usage: "print facts about environments, one a line",
		Flags: append(remoteFlags(),
			&cli.StringFlag{Name: "name", Usage: "only environments of this `NAME`"},
			&cli.StringSliceFlag{Name: "query", Usage: "`WHAT` to print, several values allowed: " + strings.Join(queryNames(), " ")},
			formatFlag()),
		Action: p.remoteQuery,
	}
}

func (p *program) remoteQuery(c *cli.Context) error {
	format, err := formatOf(c, "tui", "csv", "json")
	if err != nil {
		return err
	}
	queries := c.StringSlice("query")
	if err := checkQueries(queries); err != nil {
		return err
	}
	f, err := p.openFleet(c)
	if err != nil {
		return err
	}
	defer f.Close()
	results, duplicates := askOnce(c.Context, f, f.commands().Environments)
	f.bar.end()
	for i := range results {
		results[i].Value = named(results[i].Value, c, "name")
	}
	if format == "json" {
		err = writeJSON(p.out, envsDocumentOf(results, duplicates))
	} else {
		err = p.writeQuery(results, queries)
	}
	if err != nil {
		return err
	}
	return p.conclude(f, failuresOf(results), duplicates)
}

// named keeps the environments whose name is a flag's value, if it was given.
func named(envs []snapshot.Environment, c *cli.Context, flag string) []snapshot.Environment {
	if !c.IsSet(flag) {
		return envs
	}
	var kept []snapshot.Environment
	for i := range envs {
		if envs[i].Config.Name == c.String(flag) {
			kept = append(kept, envs[i])
		}
	}
	return kept
}

func (p *program) writeQuery(results []remote.Result[[]snapshot.Environment], queries []string) error {
	t := &table{noHeader: true}
	for _, r := range results {
		for i := range r.Value {
			row := make([]string, len(queries))
			for j, q := range queries {
				row[j] = environmentQueries[q](r.Host.Name, &r.Value[i])
			}
			t.add(row...)
		}
	}
	return t.writeCSV(p.out)
}
