package command

import (
	"strconv"
	"time"

	"github.com/urfave/cli/v2"
)

// Duration reads seconds without a unit, or a duration with one.
func Duration(text string) (time.Duration, error) {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return time.ParseDuration(text)
	}
	if !(seconds >= 0 && seconds < 1e9) { // so that neither NaN nor infinity passes
		return 0, strconv.ErrRange
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// PositiveDuration reads a flag as a duration that is not zero.
func PositiveDuration(c *cli.Context, flag string) (time.Duration, error) {
	text := Given(c, flag).String(flag)
	d, err := Duration(text)
	if err != nil || d <= 0 {
		return 0, Usage("--%s %q: write seconds, such as 10, or a duration such as 500ms", flag, text)
	}
	return d, nil
}
