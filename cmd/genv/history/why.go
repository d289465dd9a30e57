package history

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/decision"
)

// Why prints a decision with all that is recorded of it: the one that the argument names,
// or the last action.
func Why(p *command.Program, c *cli.Context, path string) error {
	output, err := command.ReadOutput(c)
	if err != nil {
		return err
	}
	id, err := readID(c)
	if err != nil {
		return err
	}
	entries, err := read(p, path, audit.Filter{Notices: true})
	if err != nil {
		return err
	}
	if id != "" {
		return writeDecisions(p, output, path, id, audit.Decided(entries, id))
	}
	return writeDecisions(p, output, path, id, audit.LastAction(entries))
}

// readID is the id that the argument is; empty for none.
func readID(c *cli.Context) (string, error) {
	if c.Args().Len() > 1 {
		return "", command.UsageError("unexpected argument %q: name one decision", c.Args().Get(1))
	}
	id := strings.ToLower(c.Args().First())
	if id != "" && !decision.IsID(id) {
		return "", command.UsageError("%q is not the id of a decision: it has 8 hexadecimal digits, as in the column ID of the history", c.Args().First())
	}
	return id, nil
}

func writeDecisions(p *command.Program, output render.Output, path, id string, entries []audit.Entry) error {
	switch {
	case len(entries) == 0 && id != "":
		return command.UsageError("no decision %s is recorded in %s: the history lists those that are", id, path)
	case output.Format == "json":
		return render.WriteJSON(p.Out, EntriesDocument{Schema: "genv.history/1", Entries: append([]audit.Entry{}, entries...)})
	case output.Format == "csv":
		return table(output, entries).Write(p.Out)
	case len(entries) == 0:
		fmt.Fprintf(p.Err, "No action is recorded in %s\n", path)
	}
	for i := range entries {
		if i > 0 {
			fmt.Fprintln(p.Out)
		}
		for _, line := range entries[i].Decision().Lines() {
			if _, err := fmt.Fprintln(p.Out, line); err != nil {
				return err
			}
		}
	}
	return nil
}
