package user

import (
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
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
	var asked []snapshot.DeviceIndex
	err = who.Update(c.Context, func(b *state.Files) error {
		env, err := who.mine(b, eid)
		if err != nil {
			return err
		}
		if env.UID != who.uid { // root may change it, and has no need to ask
			return fmt.Errorf("environment %s belongs to %s, who alone can ask; an administrator can use `genv remote exempt`", text.Shown(string(eid)), shownOwner(env))
		}
		list, err := requestsFor(b, eid, wanted)
		if err != nil {
			return err
		}
		asked = nil
		for i := range list {
			list[i].ID, list[i].UID, list[i].For = rand.Text()[:16], who.uid, length
			asked = append(asked, list[i].Index)
		}
		return who.Extensions.Add(b, who.uid, list)
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.Out, "Requested: %s more for device %s of environment %s. It is not granted yet: the genv that enforces the policy decides at its next look, and sends you a message if it sends any.\n",
		text.FormatDuration(length), text.JoinIndices(asked), text.Shown(string(eid)))
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

// requestsFor are requests about the attachments of an environment to the devices that are
// wanted, by default all.
func requestsFor(b *state.Files, eid snapshot.EnvID, wanted []snapshot.DeviceIndex) ([]snapshot.Extension, error) {
	attached := b.AttachedTo(eid)
	if len(attached) == 0 {
		return nil, fmt.Errorf("environment %s is attached to no device: genv attach attaches one", text.Shown(string(eid)))
	}
	if wanted == nil {
		wanted = attached
	}
	var list []snapshot.Extension
	for _, index := range slices.Compact(slices.Sorted(slices.Values(wanted))) {
		if !slices.Contains(attached, index) {
			return nil, fmt.Errorf("environment %s is not attached to device %s: it has %s", text.Shown(string(eid)), index, text.JoinIndices(attached))
		}
		list = append(list, snapshot.Extension{EID: eid, Index: index, Attached: b.Device(index).Attachment(eid).Time})
	}
	return list, nil
}
