package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

func (p *program) policyCommand() *cli.Command {
	return &cli.Command{
		Name:  "policy",
		Usage: "look at policy files",
		Subcommands: []*cli.Command{
			{
				Name: "check", Usage: "say all that is wrong with a policy file", ArgsUsage: "FILE",
				Action: p.policyCheck,
			},
			{
				Name: "explain", Usage: "say what holds for a user on a host, and where that comes from",
				Flags: append(ruleFlags(), formatFlag(),
					&cli.StringFlag{Name: "user", Usage: "the `USER`; without one, what holds for nobody in particular"},
					&cli.StringFlag{Name: "host", Usage: "the `HOST`, by its name in the inventory"},
					&cli.StringSliceFlag{Name: "label", Usage: "a label of the host, as `KEY=VALUE`; several times"},
					&cli.StringFlag{Name: "at", Usage: "a `TIME` such as 2026-11-20T22:00, for schedules; now, if there is none"},
				),
				Action: p.policyExplain,
			},
		},
	}
}

func (p *program) policyCheck(c *cli.Context) error {
	if c.Args().Len() != 1 {
		return usage("name the file: genv policy check policy.yaml")
	}
	path := c.Args().First()
	data, err := readPolicyFile(path)
	if err != nil {
		return err
	}
	if err := policy.Check(path, data); err != nil {
		return usage("%w", err)
	}
	_, err = fmt.Fprintf(p.out, "%s is right\n", path)
	return err
}

func (p *program) policyExplain(c *cli.Context) error {
	if err := refuseArguments(c); err != nil {
		return err
	}
	format, err := formatOf(c, "tui", "csv", "json")
	if err != nil {
		return err
	}
	q := policy.Query{User: snapshot.Username(c.String("user")), Host: snapshot.Hostname(c.String("host"))}
	if q.Labels, err = labelsOf(c.StringSlice("label")); err != nil {
		return err
	}
	if q.At, err = p.momentOf(c.String("at")); err != nil {
		return err
	}
	file, err := policyOf(c)
	if err != nil {
		return err
	}
	return p.writeExplanation(format, q, file.Explain(q))
}

func (p *program) writeExplanation(format string, q policy.Query, list []policy.Explanation) error {
	if format == "json" {
		return writeJSON(p.out, explainDocument{
			Schema: "genv.policy.explain/1", User: q.User, Host: q.Host, At: q.At.Format(time.RFC3339), Settings: list,
		})
	}
	t := &table{columns: []column{{"SETTING", 24}, {"VALUE", 16}, {"FROM", 0}}}
	for _, e := range list {
		t.add(e.Key, e.Value, e.From)
	}
	return t.write(p.out, format)
}

// explainDocument is the JSON of `genv policy explain`.
type explainDocument struct {
	Schema   string               `json:"schema"`
	User     snapshot.Username    `json:"user"`
	Host     snapshot.Hostname    `json:"host"`
	At       string               `json:"at"`
	Settings []policy.Explanation `json:"settings"`
}
