package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
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
