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

func (p *program) llmCommand() *cli.Command {
	return &cli.Command{
		Name: "llm", Aliases: []string{"llms"},
		Usage:  "serve large language models with Ollama, list them, and talk to one",
		Flags:  llmListFlags(),
		Action: p.llmPs,
		Subcommands: []*cli.Command{
			{Name: "ps", Usage: "list the models that environments of this host serve", Flags: llmListFlags(), Action: p.llmPs},
			{
				Name: "serve", Usage: "serve a model in an environment of its own, until it is interrupted", ArgsUsage: "MODEL",
				Flags:  append(withoutName(environment.SettingFlags()), environment.OverSubscribeFlag(), &cli.StringFlag{Name: "host", Value: "127.0.0.1", Usage: "listen at the interface with this `ADDRESS`; Ollama asks for no password"}, portFlag("serve at this `PORT`", "the first free one from 11434")),
				Action: p.llmServe,
			},
			{
				Name: "attach", Usage: "talk to a model that an environment of this host serves", ArgsUsage: "MODEL",
				Flags: []cli.Flag{portFlag("the one at this `PORT`, if several serve the model", "any")}, Action: p.llmAttach,
			},
		},
	}
}

// withoutName are the settings without the name, which says what is served.
func withoutName(flags []cli.Flag) (kept []cli.Flag) {
	for _, f := range flags {
		if f.Names()[0] != "name" {
			kept = append(kept, f)
		}
	}
	return kept
}

func llmListFlags() []cli.Flag { return append(command.OutputFlags(), command.TimestampFlag()) }

func portFlag(usage, otherwise string) cli.Flag {
	return &cli.IntFlag{Name: "port", Aliases: []string{"p"}, Usage: usage, DefaultText: otherwise}
}

// llmServe runs `ollama serve`, and loads the model as soon as that answers.
func (p *program) llmServe(c *cli.Context) error {
	served, err := p.servedOf(c)
	if err != nil {
		return err
	}
	client := llm.Client{Host: c.String("host"), Port: served.Port}
	return p.runJob(c, envCommand{
		words: []string{"ollama", "serve"}, name: served.Name(), environ: []string{"OLLAMA_HOST=" + net.JoinHostPort(client.Host, strconv.Itoa(served.Port))},
		meanwhile: func(ctx context.Context) {
			err := client.WaitReady(ctx)
			if err == nil {
				err = client.Load(ctx, served.Model, p.Err)
			}
			switch {
			case ctx.Err() != nil: // the server has ended
			case err != nil:
				p.Warn(fmt.Sprintf("%s is not loaded: %v", text.Shown(served.Model), err))
			default:
				p.Warn(fmt.Sprintf("%s is served at %s: genv llm attach %s", text.Shown(served.Model), client.URL(), text.Shown(served.Model)))
			}
		},
	})
}

// servedOf is what the command line asks to serve.
func (p *program) servedOf(c *cli.Context) (s llm.ServedModel, err error) {
	s = llm.ServedModel{Model: c.Args().First(), Port: c.Int("port")}
	if c.NArg() != 1 || s.Model == "" || strings.HasPrefix(s.Model, "-") {
		return s, command.UsageError("write one model, as in `genv llm serve llama3`")
	}
	if c.IsSet("port") {
		if s.Port < 1 || s.Port > 65535 {
			return s, command.UsageError("--port %d: write a port from 1 to 65535", s.Port)
		}
		return s, nil
	}
	s.Port, err = llm.FreePort(c.String("host"))
	return s, err
}

// llmDocument is the JSON of `genv llm ps`; docs/json.md describes it.
type llmDocument struct {
	Schema string      `json:"schema"`
	Models []llm.Model `json:"models"`
}

func (p *program) servedModels(ctx context.Context) ([]llm.Model, error) {
	files, err := p.person().StateFiles(ctx)
	return llm.Models(files.Environments), err
}

func (p *program) llmPs(c *cli.Context) error {
	output := command.ReadOutput(c)
	models, err := p.servedModels(c.Context)
	if err != nil {
		return err
	}
	if output.Format == "json" {
		return render.WriteJSON(p.Out, llmDocument{Schema: "genv.llm/1", Models: models})
	}
	t := output.Table(render.Col("MODEL", 12), render.Col("PORT", 8), render.Col("CREATED", 21), render.Col("EID", 8), render.Col("USER", 16), render.Col("PID(S)", 0))
	for _, m := range models {
		t.Add(output.Name(m.Model), m.ShownPort(), output.Age(m.Created, p.Now()), output.Name(string(m.EID)), output.Name(owner(m.UID, string(m.User))), environment.JoinPIDs(m.PIDs))
	}
	return t.Write(p.Out)
}

// llmAttach is a conversation: a line of stdin is a message. One's own server goes first.
func (p *program) llmAttach(c *cli.Context) error {
	if c.NArg() != 1 {
		return command.UsageError("write one model, as in `genv llm attach llama3`")
	}
	models, err := p.servedModels(c.Context)
	if err != nil {
		return err
	}
	chosen := llm.Choose(models, c.Args().First(), c.Int("port"), p.person().uid)
	if chosen == nil {
		return fmt.Errorf("no environment of this host serves %s: `genv llm ps` lists what is served, `genv llm serve` serves a model", text.Shown(c.Args().First()))
	}
	client := llm.Client{Port: chosen.Port, Owner: &chosen.UID}
	p.Warn(fmt.Sprintf("%s of %s at %s; a line is a message, end with Ctrl-D", text.Shown(chosen.Model), owner(chosen.UID, string(chosen.User)), client.URL()))
	return client.Converse(c.Context, chosen.Model, p.In, p.Out)
}
