package fleet

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/configfile"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

func (p *program) policyCheck(c *cli.Context) error {
	path := c.Args().First()
	if path == "" {
		var err error
		if path, err = configfile.Find(p.Getenv, configfile.Policy); err != nil {
			return err
		}
	}
	if path == "" || c.Args().Len() > 1 {
		return command.UsageError("missing file: write `genv policy check FILE`")
	}
	data, err := enforcement.ReadPolicyFile(path)
	if err != nil {
		return err
	}
	if err := policy.Check(path, data); err != nil {
		return command.UsageError("%w", err)
	}
	_, err = fmt.Fprintf(p.Out, "%s: OK\n", path)
	return err
}

func (p *program) policyExplain(c *cli.Context) error {
	output, err := command.ReadOutput(c)
	if err != nil {
		return err
	}
	q := enforce.Query{User: snapshot.Username(c.String("user")), Host: snapshot.Hostname(c.String("host"))}
	if q.Labels, err = labelsOf(c.StringSlice("label")); err != nil {
		return err
	}
	if q.At, err = p.Time(c.String("at")); err != nil {
		return err
	}
	file, err := enforcement.ReadPolicy(c)
	if err != nil {
		return err
	}
	return p.writeExplanation(output, q, file.Explain(q))
}

func (p *program) writeExplanation(output render.Output, q enforce.Query, list []policy.Explanation) error {
	if output.Format == "json" {
		return render.WriteJSON(p.Out, ExplainDocument{
			Schema: "genv.policy.explain/1", User: q.User, Host: q.Host, At: q.At.Format(time.RFC3339), Settings: list,
		})
	}
	t := output.Table(render.Col("SETTING", 24), render.Col("VALUE", 16), render.Col("FROM", 0))
	for _, e := range list {
		t.Add(e.Key, e.Value, e.From)
	}
	return t.Write(p.Out)
}

// ExplainDocument is the JSON of `genv policy explain`.
type ExplainDocument struct {
	Schema   string               `json:"schema"`
	User     snapshot.Username    `json:"user"`
	Host     snapshot.Hostname    `json:"host"`
	At       string               `json:"at"`
	Settings []policy.Explanation `json:"settings"`
}

// labelsOf reads words of the form KEY=VALUE.
func labelsOf(words []string) (map[string]string, error) {
	labels := make(map[string]string, len(words))
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, command.UsageError("--label %q: write it as KEY=VALUE, such as gpu=h100", word)
		}
		labels[key] = value
	}
	return labels, nil
}
