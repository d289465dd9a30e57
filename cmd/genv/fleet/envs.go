package fleet

import (
	"context"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
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

func envsCommand(h hostFlags) *cli.Command {
	o := &listFlags{hostFlags: h}
	return &cli.Command{
		Name: "envs", Usage: "list the environments of every host",
		Flags:  o.tableFlags(allHosts, command.TimestampFlag(&o.output)),
		Action: func(c *cli.Context) error { return list(c, &o.hostFlags, (*fleet).environments, o.writeEnvs) },
	}
}

func (f *fleet) environments(ctx context.Context, h remote.Host) ([]snapshot.Environment, error) {
	return f.commands().Environments(ctx, h)
}

func envsDocumentOf(a answers[[]snapshot.Environment]) EnvsDocument {
	document := EnvsDocument{Schema: "genv.remote.envs/1", Hosts: []hostEnvironments{}, unanswered: a.unanswered}
	for _, r := range a.of {
		host := hostEnvironments{Host: r.Host.Name, Environments: []environment.Document{}}
		for i := range r.Value {
			host.Environments = append(host.Environments, environment.DocumentOf(&r.Value[i]))
		}
		document.Total += len(r.Value)
		document.Hosts = append(document.Hosts, host)
	}
	return document
}

func (o *listFlags) writeEnvs(a answers[[]snapshot.Environment]) error {
	output, now := o.output, o.Now()
	t := output.Table(render.Col("HOST", 25), render.Col("ID", 8), render.Col("USER", 16), render.Col("NAME", 16),
		render.Col("CREATED", 0))
	for _, r := range a.of {
		for _, e := range r.Value {
			t.Add(r.Host.Name, output.Name(string(e.EID)), output.Name(string(e.Username)), output.Name(e.Config.Name),
				output.Age(e.Creation, now))
		}
	}
	return o.print(envsDocumentOf(a), t, len(a.Failed), "Total %d environments on %d hosts", t.Len(), len(a.of))
}

// queryOptions is what the flags of `genv remote query` say.
type queryOptions struct {
	hostFlags
	name, format string
	queries      []string
}

func queryCommand(h hostFlags) *cli.Command {
	o := &queryOptions{hostFlags: h}
	return &cli.Command{
		Name:  "query",
		Usage: "print facts about environments, one per line",
		Flags: o.flags(allHosts,
			command.String(&o.name, "name", "only environments of this `NAME`"),
			environment.QueriesOn("").Flag(&o.queries),
			command.FormatFlag(&o.format, "tui", "csv", "json")),
		Action: func(c *cli.Context) error {
			other := func(e snapshot.Environment) bool { return c.IsSet("name") && e.Config.Name != o.name }
			return list(c, &o.hostFlags, (*fleet).environments, func(a answers[[]snapshot.Environment]) error {
				for i := range a.of {
					a.of[i].Value = slices.DeleteFunc(a.of[i].Value, other)
				}
				return o.write(a)
			})
		},
	}
}

func (o *queryOptions) write(a answers[[]snapshot.Environment]) error {
	if o.format == "json" {
		return render.WriteJSON(o.Out, envsDocumentOf(a))
	}
	var rows [][]string
	for _, r := range a.of {
		for i := range r.Value {
			rows = append(rows, environment.QueriesOn(r.Host.Name).Row(o.queries, &r.Value[i]))
		}
	}
	return render.WriteCSV(o.Out, rows)
}
