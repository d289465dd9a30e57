package user

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// extend writes a request, on which the enforcing genv decides. It can't say what will be
// decided: the policy may be on another machine.
func (p *program) extend(c *cli.Context) error {
	length, err := extensionLength(c)
	if err != nil {
		return err
	}
	wanted, err := indices(c)
	if err != nil {
		return err
	}
	who := p.person()
	eid, err := who.named(c)
	if err != nil {
		return err
	}
	result, err := who.changeIn(c.Context, eid, change.Change{Extend: &change.Extend{EID: eid, Indices: wanted, Seconds: int64(length.Seconds())}})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.Out, "Requested: %s more for device %s of environment %s. It is not granted yet: the genv that enforces the policy decides at its next look, and sends you a message if it sends any.\n",
		text.FormatDuration(length), text.JoinIndices(result.Extended), text.Shown(string(eid)))
	return err
}

func extensionLength(c *cli.Context) (time.Duration, error) {
	if c.NArg() != 1 {
		return 0, command.UsageError("write for how much longer, as in `genv extend 2h`")
	}
	length, err := text.ParseDuration(c.Args().First())
	switch {
	case err != nil:
		return 0, command.UsageError("%w", err)
	case length < time.Minute || length > snapshot.MaxExtension:
		return 0, command.UsageError("%s: write a time from 1m to %s", c.Args().First(), text.FormatDuration(snapshot.MaxExtension))
	}
	return length.Truncate(time.Second), nil
}
