package fleet

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/render"
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

// EnvsDocument is the JSON of `genv remote envs`; docs/json.md describes it.
type EnvsDocument struct {
	Schema string             `json:"schema"`
	Total  int                `json:"total"`
	Hosts  []hostEnvironments `json:"hosts"`
	Failed []render.Failure   `json:"failed"`
	// Duplicates are names that are left out because they lead to the same machine as
	// another one.
	Duplicates []controller.Duplicate `json:"duplicates"`
}

type hostEnvironments struct {
	Host         string                 `json:"host"`
	Environments []environment.Document `json:"environments"`
}

func (p *program) remoteEnvs(c *cli.Context) error {
	f, format, err := p.openListing(c)
	if err != nil {
		return err
	}
	defer f.Close()
	results, duplicates := askOnce(c.Context, f, f.commands().Environments)
	f.Bar.End()
	if format == "json" {
		err = render.WriteJSON(p.Out, envsDocumentOf(results, duplicates))
	} else {
		err = p.writeEnvs(c, results, format)
	}
	if err != nil {
		return err
	}
	return p.conclude(f, render.FailuresOf(results), duplicates)
}

func envsDocumentOf(results []remote.Result[[]snapshot.Environment], duplicates []controller.Duplicate) EnvsDocument {
	document := EnvsDocument{Schema: "genv.remote.envs/1", Hosts: []hostEnvironments{}, Failed: render.FailuresOf(results), Duplicates: append([]controller.Duplicate{}, duplicates...)}
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		host := hostEnvironments{Host: r.Host.Name, Environments: []environment.Document{}}
		for i := range r.Value {
			host.Environments = append(host.Environments, environment.DocumentOf(&r.Value[i]))
		}
		document.Total += len(r.Value)
		document.Hosts = append(document.Hosts, host)
	}
	return document
}

func (p *program) writeEnvs(c *cli.Context, results []remote.Result[[]snapshot.Environment], format string) error {
	t := &render.Table{
		Columns:  []render.Column{render.Col("HOST", 25), render.Col("ID", 8), render.Col("USER", 16), render.Col("NAME", 16), render.Col("CREATED", 0)},
		NoHeader: c.Bool("no-header"),
	}
	hosts := 0
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		hosts++
		for _, e := range r.Value {
			t.Add(r.Host.Name, render.ShownName(format, string(e.EID)), render.ShownName(format, string(e.Username)), render.ShownName(format, e.Config.Name), environment.Creation(e.Creation, p.Now(), c.Bool("timestamp")))
		}
	}
	if err := t.Write(p.Out, format); err != nil || c.Bool("no-summary") {
		return err
	}
	_, err := fmt.Fprintf(p.Out, "\nTotal %d environments on %d hosts\n", len(t.Rows), hosts)
	return err
}

func (p *program) remoteQueryCommand() *cli.Command {
	return &cli.Command{
		Name:  "query",
		Usage: "print facts about environments, one a line",
		Flags: append(remoteFlags(),
			&cli.StringFlag{Name: "name", Usage: "only environments of this `NAME`"},
			&cli.StringSliceFlag{Name: "query", Usage: "`WHAT` to print, several values allowed: " + strings.Join(environment.QueryNames(), " ")},
			command.FormatFlag()),
		Action: p.remoteQuery,
	}
}

func (p *program) remoteQuery(c *cli.Context) error {
	format, err := command.FormatOf(c, "tui", "csv", "json")
	if err != nil {
		return err
	}
	queries := c.StringSlice("query")
	if err := environment.CheckQueries(queries); err != nil {
		return err
	}
	f, err := p.openFleet(c)
	if err != nil {
		return err
	}
	defer f.Close()
	results, duplicates := askOnce(c.Context, f, f.commands().Environments)
	f.Bar.End()
	for i := range results {
		results[i].Value = named(results[i].Value, c, "name")
	}
	if format == "json" {
		err = render.WriteJSON(p.Out, envsDocumentOf(results, duplicates))
	} else {
		err = p.writeQuery(results, queries)
	}
	if err != nil {
		return err
	}
	return p.conclude(f, render.FailuresOf(results), duplicates)
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
	t := &render.Table{NoHeader: true}
	for _, r := range results {
		for i := range r.Value {
			row := make([]string, len(queries))
			for j, q := range queries {
				row[j] = environment.Queries[q](r.Host.Name, &r.Value[i])
			}
			t.Add(row...)
		}
	}
	return t.WriteCSV(p.Out)
}
