package fleet

import (
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/llm"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type llmOptions struct {
	listFlags
	settings environment.SettingFlags
}

func llmCommand(h hostFlags) *cli.Command {
	o := &llmOptions{listFlags: listFlags{hostFlags: h}}
	flags := o.tableFlags(namedHosts, command.TimestampFlag(&o.output))
	return &cli.Command{
		Name: "llm", Aliases: []string{"llms"},
		Usage: "list the language models that the hosts serve, serve one, or talk to one", Flags: flags, Action: o.list,
		Subcommands: []*cli.Command{
			{Name: "ps", Usage: "list the models that environments on the hosts serve", Flags: flags, Action: o.list},
			{
				Name: "serve", ArgsUsage: "MODEL",
				Usage:  "serve a model on a host that has the GPUs for it, in this terminal",
				Flags:  o.flags(namedHosts, append(o.settings.GPUFlags(), o.settings.OverSubscribeFlag())...),
				Action: o.serve,
			},
			{
				Name: "attach", Usage: "talk to a model that a host serves", ArgsUsage: "MODEL",
				Flags: o.flags(namedHosts), Action: o.attach,
			},
		},
	}
}

// llmDocument is the JSON of `genv remote llm ps`.
type llmDocument struct {
	Schema string     `json:"schema"`
	Models []llmModel `json:"models"`
	unanswered
}

type llmModel struct {
	Host string `json:"host"`
	llm.ServedModel

	at remote.Host
}

func modelsOf(results []remote.Result[[]snapshot.Environment]) []llmModel {
	models := []llmModel{}
	for _, r := range results {
		for _, m := range llm.Models(r.Value) {
			models = append(models, llmModel{r.Host.Name, m, r.Host})
		}
	}
	return models
}

func (o *llmOptions) list(c *cli.Context) error {
	return list(c, &o.hostFlags, (*fleet).environments, o.write)
}

func (o *llmOptions) write(a answers[[]snapshot.Environment]) error {
	models := modelsOf(a.of)
	t := o.output.Table("HOST:25", "MODEL:12", "PORT:8", "CREATED:21", "EID:8", "USER")
	for _, m := range models {
		t.Add(m.Host, o.output.Name(m.Model), m.ShownPort(), o.output.Age(m.Created, o.Now()),
			o.output.Name(string(m.EID)), o.output.Name(string(m.User)))
	}
	document := llmDocument{Schema: "genv.remote.llm/1", Models: models, unanswered: a.unanswered}
	return o.print(document, t, len(a.Failed), "Total %d LLMs on %d hosts", len(models), len(a.of))
}

func modelArgument(c *cli.Context) (string, error) {
	if c.NArg() != 1 || c.Args().First() == "" {
		return "", command.UsageError("write one model, such as llama3")
	}
	return c.Args().First(), nil
}

func (o *llmOptions) attach(c *cli.Context) error {
	model, err := modelArgument(c)
	if err != nil {
		return err
	}
	f, err := o.openHosts(c)
	if err != nil {
		return err
	}
	defer f.close()
	results, err := askMost(c, f, f.commands().Environments)
	if err != nil {
		return err
	}
	for _, m := range modelsOf(results) {
		if m.Model == model && m.Port != 0 {
			words := []string{"genv", "llm", "attach", "--port", strconv.Itoa(m.Port), model}
			return f.become(c.Context, m.at, remote.Command{Args: words}.ShellLine())
		}
	}
	return fmt.Errorf("no host serves %s: `genv remote llm ps` lists what is served", text.Shown(model))
}

func (o *llmOptions) serve(c *cli.Context) error {
	model, err := modelArgument(c)
	if err != nil {
		return err
	}
	settings, request, err := o.requestOf(c, &o.settings)
	if err != nil {
		return err
	}
	words := []string{"genv", "llm", "serve"}
	if settings.GPUs != nil {
		words = append(words, "--gpus", strconv.Itoa(request.Count))
	}
	if settings.GPUMemory.Known() {
		words = append(words, "--gpu-memory", settings.GPUMemory.String())
	}
	if request.OverSubscribe {
		words = append(words, "--over-subscribe")
	}
	f, err := o.openHosts(c)
	if err != nil {
		return err
	}
	defer f.close()
	host, err := f.findRoom(c, request)
	if err != nil {
		return err
	}
	return f.become(c.Context, host, remote.Command{Args: append(words, model)}.ShellLine())
}
