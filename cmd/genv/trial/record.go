package trial

import (
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/recording/recorder"
	"github.com/seed-3119e985/genv/snapshot"
)

const (
	on  = "on"
	off = "off"
)

// RecordFlags say whether a controller records what it judges.
func RecordFlags() []cli.Flag {
	return []cli.Flag{
		command.OneOf(&cli.StringFlag{Name: "record", Value: off, Usage: "on or `off`: record what is judged, in --state-dir, for genv policy try"}, []string{on, off}),
		&cli.StringFlag{Name: "record-keep", Value: "7d", Usage: "for this `TIME`"},
		&cli.StringFlag{Name: "record-max", Value: "1g", Usage: "and no more than this `SIZE`: the oldest hours are removed"},
	}
}

// The least that a recording may be.
const (
	minKeep = time.Hour
	minSize = 10e6
)

// ReadRecord reads RecordFlags. What it returns begins to record in the folder of a controller; it
// is nil for none.
func ReadRecord(c *cli.Context, p *command.Program, log zerolog.Logger) (func(dir string) enforcement.Recording, error) {
	keep, err := command.PositiveDuration(c, "record-keep")
	if err != nil {
		return nil, err
	}
	if keep < minKeep {
		return nil, command.UsageError("--record-keep %s: write an hour or more, such as 7d, or --record off", c.String("record-keep"))
	}
	size, err := snapshot.ParseMemory(c.String("record-max"))
	if err != nil || size.Bytes() < minSize {
		return nil, command.UsageError("--record-max %q: write a size of 10m or more, such as 1g", c.String("record-max"))
	}
	switch c.String("record") {
	case on:
	case off:
		return nil, nil //nolint:nilnil // none is asked for
	default:
		return nil, command.UsageError("--record %q: write on or off", c.String("record"))
	}
	return func(dir string) enforcement.Recording {
		return records{recorder.Start(recorder.Options{
			Dir: filepath.Join(dir, recording.FolderName), Keep: keep, MaxBytes: size.Bytes(), Version: p.Version, Now: p.Now, Log: log,
		})}
	}, nil
}

// records is a Recorder that gets policies as they were read.
type records struct{ *recorder.Recorder }

// Use implements enforcement.Recording.
func (r records) Use(file *policy.File, interval time.Duration) {
	r.Recorder.Use(recording.PolicyOf(file), interval)
}
