package history

import (
	"context"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/audit"
)

const (
	// lastLines is how many lines of what there is already are printed first.
	lastLines = 10
	// followEvery is the time between two looks at a log.
	followEvery = 250 * time.Millisecond
)

// entryDocument is a line of the JSON of `history --follow`.
type entryDocument struct {
	Schema string `json:"schema"`
	audit.Entry
}

// follow prints what is in a log, only the last of it if that is asked for, and then what
// comes, until ctx ends.
func follow(ctx context.Context, p *command.Program, output render.Output, tail *audit.Tail, last bool) error {
	defer tail.Close()
	look := time.NewTicker(followEvery)
	defer look.Stop()
	for first := true; ; first = false {
		entries, damage, err := tail.Entries()
		warnOf(p, tail.Path, damage)
		if err != nil {
			return readError(err)
		}
		if first && last {
			entries = entries[max(0, len(entries)-lastLines):]
		}
		if err := writeMore(p, output, entries, first); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

// writeMore prints entries below others: each as a line of JSON, or as rows of a table that
// has its header already.
func writeMore(p *command.Program, output render.Output, entries []audit.Entry, first bool) error {
	if output.Format == "json" {
		for i := range entries {
			if err := render.WriteJSON(p.Out, entryDocument{"genv.history.entry/1", entries[i]}); err != nil {
				return err
			}
		}
		return nil
	}
	output.NoHeader = output.NoHeader || !first
	if len(entries) == 0 && output.NoHeader {
		return nil
	}
	return table(output, entries).Write(p.Out)
}
