package fleet

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// EnvsDocument is the JSON of `genv remote envs`; docs/json.md describes it.
type EnvsDocument struct {
	Schema string             `json:"schema"`
	Total  int                `json:"total"`
	Hosts  []hostEnvironments `json:"hosts"`
	unanswered
}

type hostEnvironments struct {
	Host         string                 `json:"host"`
	Environments []environment.Document `json:"environments"`
}

func (p *program) envsCommand() *cli.Command {
	o := new(listFlags)
	write := func(results []remote.Result[[]snapshot.Environment], duplicates []controller.Duplicate) error {
		return p.writeEnvs(o, results, duplicates)
	}
	return &cli.Command{
		Name: "envs", Usage: "list the environments of every host",
		Flags:  o.tableFlags(allHosts, command.TimestampFlag(&o.output)),
		Action: func(c *cli.Context) error { return list(p, c, &o.hostFlags, (*fleet).environments, write) },
	}
}

func (f *fleet) environments(ctx context.Context, h remote.Host) ([]snapshot.Environment, error) {
	return f.commands().Environments(ctx, h)
}

func envsDocumentOf(results []remote.Result[[]snapshot.Environment], duplicates []controller.Duplicate) EnvsDocument {
	document := EnvsDocument{
		Schema: "genv.remote.envs/1", Hosts: []hostEnvironments{}, unanswered: unansweredOf(results, duplicates),
	}
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

func (p *program) writeEnvs(
	list *listFlags, results []remote.Result[[]snapshot.Environment], duplicates []controller.Duplicate,
) error {
	if list.output.Format == "json" {
		return render.WriteJSON(p.Out, envsDocumentOf(results, duplicates))
	}
	output, now := list.output, p.Now()
	t := output.Table(render.Col("HOST", 25), render.Col("ID", 8), render.Col("USER", 16), render.Col("NAME", 16),
		render.Col("CREATED", 0))
	hosts := 0
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		hosts++
		for _, e := range r.Value {
			t.Add(r.Host.Name, output.Name(string(e.EID)), output.Name(string(e.Username)), output.Name(e.Config.Name),
				output.Age(e.Creation, now))
		}
	}
	if err := t.Write(p.Out); err != nil || list.noSummary {
		return err
	}
	_, err := fmt.Fprintf(p.Out, "\nTotal %d environments on %d hosts%s\n",
		t.Len(), hosts, list.alsoFailed(len(results)-hosts))
	return err
}

// queryOptions is what the flags of `genv remote query` say.
type queryOptions struct {
	*program
	hostFlags
	name, format string
	queries      []string
}

func (p *program) queryCommand() *cli.Command {
	o := &queryOptions{program: p}
	return &cli.Command{
		Name:  "query",
		Usage: "print facts about environments, one per line",
		Flags: o.flags(allHosts,
			command.String(&o.name, "name", "only environments of this `NAME`"),
			environment.QueriesOn("").Flag(&o.queries),
			command.FormatFlag(&o.format, "tui", "csv", "json")),
		Action: func(c *cli.Context) error {
			named := c.IsSet("name")
			write := func(results []remote.Result[[]snapshot.Environment], duplicates []controller.Duplicate) error {
				return o.write(named, results, duplicates)
			}
			return list(p, c, &o.hostFlags, (*fleet).environments, write)
		},
	}
}

func (o *queryOptions) write(
	named bool, results []remote.Result[[]snapshot.Environment], duplicates []controller.Duplicate,
) error {
	var rows [][]string
	for i := range results {
		r := &results[i]
		r.Value = slices.DeleteFunc(r.Value, func(e snapshot.Environment) bool {
			return named && e.Config.Name != o.name
		})
		for j := range r.Value {
			rows = append(rows, environment.QueriesOn(r.Host.Name).Row(o.queries, &r.Value[j]))
		}
	}
	if o.format == "json" {
		return render.WriteJSON(o.Out, envsDocumentOf(results, duplicates))
	}
	return render.WriteCSV(o.Out, rows)
}
