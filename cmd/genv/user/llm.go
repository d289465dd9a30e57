package user

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/llm"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type llmOptions struct {
	*userCommands
	activateOptions
	output render.Output
	host   string
	port   int
}

func (p *userCommands) llmCommand() *cli.Command {
	o := &llmOptions{userCommands: p, host: "127.0.0.1"}
	list := append(command.OutputFlags(&o.output), command.TimestampFlag(&o.output))
	return &cli.Command{
		Name: "llm", Aliases: []string{"llms"},
		Usage: "serve large language models with Ollama, list them, and talk to one", Flags: list, Action: o.list,
		Subcommands: []*cli.Command{
			{Name: "ps", Usage: "list the models that environments of this host serve", Flags: list, Action: o.list},
			{
				Name: "serve", ArgsUsage: "MODEL",
				Usage: "serve a model in an environment of its own, until it is interrupted",
				Flags: append(o.GPUFlags(), o.OverSubscribeFlag(),
					command.String(&o.host, "host",
						"listen at the interface with this `ADDRESS`; Ollama asks for no password"),
					command.Int(&o.port, "port,p", "serve at `PORT`").DefaultText("the first free one from 11434")),
				Action: o.serve,
			},
			{
				Name: "attach", Usage: "talk to a model that an environment of this host serves", ArgsUsage: "MODEL",
				Flags: []cli.Flag{command.Int(&o.port, "port,p", "the one at this `PORT`, if several serve the model").
					DefaultText("any")},
				Action: o.attach,
			},
		},
	}
}

func (o *llmOptions) serve(c *cli.Context) error {
	served, err := o.served(c)
	if err != nil {
		return err
	}
	client := llm.Client{Host: o.host, Port: served.Port}
	address := net.JoinHostPort(client.Host, strconv.Itoa(served.Port))
	return o.run(c, &o.activateOptions, envCommand{
		words: []string{"ollama", "serve"}, name: served.Name(), environ: []string{"OLLAMA_HOST=" + address},
		background: func(ctx context.Context) {
			err := client.WaitReady(ctx)
			if err == nil {
				err = client.Load(ctx, served.Model, o.Err)
			}
			switch {
			case ctx.Err() != nil: // the server has ended
			case err != nil:
				o.Warnf("%s is not loaded: %v", text.Shown(served.Model), err)
			default:
				name := text.Shown(served.Model)
				o.Warnf("%s is served at %s: genv llm attach %s", name, client.URL(), name)
			}
		},
	})
}

func (o *llmOptions) served(c *cli.Context) (s llm.ServedModel, err error) {
	s = llm.ServedModel{Model: c.Args().First(), Port: o.port}
	if c.NArg() != 1 || s.Model == "" || strings.HasPrefix(s.Model, "-") {
		return s, command.UsageError("write one model, as in `genv llm serve llama3`")
	}
	if c.IsSet("port") {
		if s.Port < 1 || s.Port > 65535 {
			return s, command.WrongFlag("port", " %d: write a port from 1 to 65535", s.Port)
		}
		return s, nil
	}
	s.Port, err = llm.FreePort(o.host)
	return s, err
}

func (p *userCommands) servedModels(ctx context.Context) ([]llm.ServedModel, error) {
	files, err := p.person().StateFiles(ctx)
	return llm.Models(files.Environments), err
}

func (o *llmOptions) list(c *cli.Context) error {
	// llmDocument is the JSON of `genv llm ps`.
	type llmDocument struct {
		Schema string            `json:"schema"`
		Models []llm.ServedModel `json:"models"`
	}
	models, err := o.servedModels(c.Context)
	if err != nil {
		return err
	}
	if o.output.Format == "json" {
		return render.WriteJSON(o.Out, llmDocument{Schema: "genv.llm/1", Models: models})
	}
	name := o.output.Name
	t := o.output.Table("MODEL:12", "PORT:8", "CREATED:21", "EID:8", "USER:16", "PID(S)")
	for _, m := range models {
		t.Add(name(m.Model), m.ShownPort(), o.output.Age(m.Created, o.Now()), name(string(m.EID)),
			name(owner(m.UID, string(m.User))), environment.JoinPIDs(m.PIDs))
	}
	return t.Write(o.Out)
}

func (o *llmOptions) attach(c *cli.Context) error {
	if c.NArg() != 1 {
		return command.UsageError("write one model, as in `genv llm attach llama3`")
	}
	models, err := o.servedModels(c.Context)
	if err != nil {
		return err
	}
	chosen := llm.Choose(models, c.Args().First(), o.port, o.person().uid)
	if chosen == nil {
		return fmt.Errorf("no environment of this host serves %s: `genv llm ps` lists what is served",
			text.Shown(c.Args().First()))
	}
	client := llm.Client{Port: chosen.Port, Owner: &chosen.UID}
	o.Warnf("%s of %s at %s; a line is a message, end with Ctrl-D",
		text.Shown(chosen.Model), owner(chosen.UID, string(chosen.User)), client.URL())
	return client.Converse(c.Context, chosen.Model, o.In, o.Out)
}
