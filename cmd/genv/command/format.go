package command

import (
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// OutputFlags are those of the commands that print a table, maybe also in other formats.
func OutputFlags(o *render.Output, formats ...string) []cli.Flag {
	return []cli.Flag{
		FormatFlag(&o.Format, append([]string{"tui", "csv", "json"}, formats...)...),
		Bool(&o.NoHeader, "no-header", "leave out the names of the columns").Config(Output),
	}
}

// TimestampFlag is for tables with times.
func TimestampFlag(o *render.Output) cli.Flag {
	return Bool(&o.Timestamp, "timestamp", "print times instead of ages").Config(Output)
}

// layouts are how users write a time; without a zone it is local.
var layouts = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02",
}

// Time reads a time; now if the text is empty.
func (p *Program) Time(text string) (time.Time, error) {
	if text == "" {
		return p.Now(), nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, UsageError("%q is not a time: write it as 2026-11-20T22:00, or 2026-11-20", text)
}

// Ago reads the value of a flag: a time, or how long ago it was, as 2h or 7d; the zero time if it is empty.
func (p *Program) Ago(flag, written string) (time.Time, error) {
	if written == "" {
		return time.Time{}, nil
	}
	if ago, err := text.ParseDuration(written); err == nil {
		return p.Now().Add(-ago), nil
	}
	t, err := p.Time(written)
	if err != nil {
		return t, WrongFlag(flag, " %q: write how long ago, as 2h or 7d, or a time as 2026-11-20T22:00", written)
	}
	return t, nil
}
