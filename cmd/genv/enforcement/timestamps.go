package enforcement

import (
	"io"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
)

// Timestamps is where lines on stdout begin with the time. Those on stderr always do.
type Timestamps string

// The choices of --timestamps.
const (
	TimestampsAuto   Timestamps = "auto" // on a terminal; elsewhere they are 1.4.3's lines
	TimestampsAlways Timestamps = "always"
	TimestampsNever  Timestamps = "never"
)

// TimestampsFlag is that of loops.
func TimestampsFlag() cli.Flag {
	return command.OneOf(&cli.StringFlag{
		Name: "timestamps", Category: command.Site, Value: string(TimestampsAuto),
		Usage: "`WHEN` to print the time in front of lines on stdout: auto (on a terminal), always or never; on stderr it is always printed",
	}, []string{string(TimestampsAuto), string(TimestampsAlways), string(TimestampsNever)})
}

// ReadTimestamps reads TimestampsFlag.
func ReadTimestamps(c *cli.Context) (Timestamps, error) {
	t := Timestamps(c.String("timestamps"))
	switch t {
	case TimestampsAuto, TimestampsAlways, TimestampsNever:
		return t, nil
	}
	return "", command.UsageError("--timestamps %q: write auto, always or never", t)
}

func (t Timestamps) dates(out io.Writer) bool {
	return t == TimestampsAlways || t == TimestampsAuto && render.IsTerminal(out)
}
