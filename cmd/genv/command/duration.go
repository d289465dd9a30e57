package command

import (
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Duration is the value of a flag.
func Duration(c *cli.Context, flag string) (time.Duration, error) {
	d, err := text.ParseDuration(Given(c, flag).String(flag))
	if err != nil {
		return 0, UsageError("--%s %w", flag, err)
	}
	return d, nil
}

// PositiveDuration is the value of a flag, which must be more than 0.
func PositiveDuration(c *cli.Context, flag string) (time.Duration, error) {
	d, err := Duration(c, flag)
	if err == nil && d == 0 {
		return 0, UsageError("--%s %q: write a duration of more than 0", flag, Given(c, flag).String(flag))
	}
	return d, err
}
