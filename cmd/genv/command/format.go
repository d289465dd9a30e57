package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// OutputFlags are those of the commands that print a table.
func OutputFlags() []cli.Flag {
	return []cli.Flag{
		FormatFlag("tui", "csv", "json"),
		&cli.BoolFlag{Name: "no-header", Category: Output, Usage: "leave out the names of the columns"},
	}
}

// TimestampFlag is for tables with times.
func TimestampFlag() cli.Flag {
	return &cli.BoolFlag{Name: "timestamp", Category: Output, Usage: "print times instead of ages"}
}

// ReadOutput reads OutputFlags and TimestampFlag, on whatever level they were given.
func ReadOutput(c *cli.Context) (render.Output, error) {
	format, err := FormatOf(c, "tui", "csv", "json")
	return render.Output{Format: format, NoHeader: Bool(c, "no-header"), Timestamp: Bool(c, "timestamp")}, err
}

// FormatFlag chooses one of the formats; the first is the default.
func FormatFlag(formats ...string) cli.Flag {
	return OneOf(&cli.StringFlag{Name: "format", Category: Output, Value: formats[0], Usage: fmt.Sprintf("`FORMAT`: %s", alternatives(formats))}, formats)
}

// FormatOf reads that flag.
func FormatOf(c *cli.Context, formats ...string) (string, error) {
	format := String(c, "format")
	if !slices.Contains(formats, format) {
		return "", UsageError("--format %q: write %s", format, alternatives(formats))
	}
	return format, nil
}

// alternatives are words as a sentence lists them: tui, csv or json.
func alternatives(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// CheckChoices refuses a missing flag, and values that it doesn't have.
func CheckChoices(flag string, values, choices []string) error {
	if len(values) == 0 {
		return UsageError("missing --%s: write one or more of %s", flag, strings.Join(choices, " "))
	}
	for _, value := range values {
		if !slices.Contains(choices, value) {
			return UsageError("--%s %q: write one of %s", flag, value, strings.Join(choices, " "))
		}
	}
	return nil
}

// Duration is the value of a flag.
func Duration(c *cli.Context, flag string) (time.Duration, error) {
	d, err := text.ParseDuration(String(c, flag))
	if err != nil {
		return 0, UsageError("--%s %w", flag, err)
	}
	return d, nil
}

// PositiveDuration is the value of a flag, which must be more than 0.
func PositiveDuration(c *cli.Context, flag string) (time.Duration, error) {
	d, err := Duration(c, flag)
	if err == nil && d == 0 {
		return 0, UsageError("--%s %q: write a duration of more than 0", flag, String(c, flag))
	}
	return d, err
}

// layouts are how users write a time; without a zone it is local.
var layouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"}

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

// Ago reads the value of a flag: a time, or how long ago it was, as 2h or 7d; the zero time if
// it is empty.
func (p *Program) Ago(flag, written string) (time.Time, error) {
	if written == "" {
		return time.Time{}, nil
	}
	if ago, err := text.ParseDuration(written); err == nil {
		return p.Now().Add(-ago), nil
	}
	t, err := p.Time(written)
	if err != nil {
		return t, UsageError("--%s %q: write how long ago, as 2h or 7d, or a time as 2026-11-20T22:00", flag, written)
	}
	return t, nil
}
