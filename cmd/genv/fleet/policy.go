package fleet

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

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
	if err := p.addLabels(c, &q); err != nil {
		return err
	}
	file, err := enforcement.ReadPolicy(c)
	if err != nil {
		return err
	}
	return p.writeExplanation(output, q, file.Explain(q))
}

// addLabels adds the labels that the inventory has for a host to those of flags.
func (p *program) addLabels(c *cli.Context, q *enforce.Query) error {
	if q.Host == "" {
		return nil
	}
	hosts, _, err := p.readInventory(c)
	if err != nil {
		return err
	}
	names := make([]string, len(hosts))
	for i := range hosts {
		names[i] = hosts[i].Name
		if text.FoldHost(hosts[i].Name) != text.FoldHost(string(q.Host)) {
			continue
		}
		for key, value := range hosts[i].Labels {
			if _, set := q.Labels[key]; !set {
				q.Labels[key] = value
			}
		}
		return nil
	}
	if len(hosts) > 0 {
		p.Warn(fmt.Sprintf("warning: host %q is not in the inventory, so it has only the labels of --label; %s",
			q.Host, text.Hint(string(q.Host), names, "correct the name, or add it there")))
	}
	return nil
}

func (p *program) writeExplanation(output render.Output, q enforce.Query, list []policy.Explanation) error {
	if output.Format == "json" {
		return render.WriteJSON(p.Out, ExplainDocument{
			Schema: "genv.policy.explain/1", User: q.User, Host: q.Host, Labels: q.Labels, At: q.At.Format(time.RFC3339), Settings: list,
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
	Labels   map[string]string    `json:"labels"`
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
