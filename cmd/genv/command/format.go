package command

import (
	"strings"

	"github.com/urfave/cli/v2"
)

func FormatFlag() cli.Flag {
	return &cli.StringFlag{Name: "format", Value: "tui", Usage: "`FORMAT`: tui, csv or json"}
}

// FormatOf checks --format.
func FormatOf(c *cli.Context, formats ...string) (string, error) {
	format := Given(c, "format").String("format")
	for _, f := range formats {
		if f == format {
			return f, nil
		}
	}
	return "", Usage("--format %q: write %s", format, strings.Join(formats, " or "))
}
