package history

import (
	"cmp"
	"strconv"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/audit"
)

// StatsDocument is the JSON of `remote history --stats`.
type StatsDocument struct {
	Schema string `json:"schema"`
	audit.Stats
}

// writeStats prints a row for each user and rule. People also get the total.
func writeStats(p *command.Program, output render.Output, s audit.Stats) error {
	if output.Format == "json" {
		return render.WriteJSON(p.Out, StatsDocument{Schema: "genv.history.stats/1", Stats: s})
	}
	columns := []render.Column{
		render.Col("USER", 10), render.Col("RULE", 22), render.Col("WARNED", 8), render.Col("TERMINATED", 12),
		render.Col("DETACHED", 10), render.Col("EXEMPTED", 10), render.Col("REFUSED", 9), render.Col("FAILED", 8),
	}
	if dryRun := s.Total.WouldTerminate+s.Total.WouldDetach > 0; dryRun || output.Format == "csv" {
		columns = append(columns, render.Col("WOULD-TERMINATE", 17), render.Col("WOULD-DETACH", 0))
	}
	t := output.Table(columns...)
	add := func(user, rule string, c audit.Counts) {
		row := []string{user, rule}
		for _, n := range []int{c.Warned, c.Terminated, c.Detached, c.Exempted, c.Refused, c.Failed, c.WouldTerminate, c.WouldDetach} {
			row = append(row, strconv.Itoa(n))
		}
		t.Add(row[:len(columns)]...)
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		user, rule := string(r.User), string(r.Rule)
		if output.Format == "tui" {
			user, rule = cmp.Or(output.Name(user), "-"), cmp.Or(rule, "-")
		}
		add(user, rule, r.Counts)
	}
	if output.Format == "tui" && len(s.Rows) > 1 {
		add("(all)", "(all)", s.Total)
	}
	return t.Write(p.Out)
}
