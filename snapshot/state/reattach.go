package state

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Reattach attaches registered environments to devices that their processes use,
// whether these have room or not. It is for the moments after a restoration,
// when attachments that were made since the copy are missing; a warning names
// each one. What is attached already stays as it is.
func (s *Store) Reattach(ctx context.Context, uses map[snapshot.EnvID][]snapshot.DeviceIndex) (Files, error) {
	books, err := s.updateOrRead(ctx, func(b *Files) error {
		for _, eid := range slices.Sorted(maps.Keys(uses)) {
			env := b.Environment(eid)
			if env == nil {
				continue
			}
			for _, index := range uses[eid] {
				b.attachAgain(env, index, snapshot.DateOf(s.now()))
			}
		}
		return nil
	}, func(*folder) {})
	return s.finish(ctx, books, err)
}

func (b *Files) attachAgain(env *snapshot.Environment, index snapshot.DeviceIndex, at snapshot.Date) {
	d := b.Device(index)
	if d == nil || d.Attachment(env.EID) != nil {
		return
	}
	d.Attachments = append(slices.Clone(d.Attachments), snapshot.Attachment{EID: env.EID, GPUMemory: env.Config.GPUMemory, Time: at})
	b.Warnings = append(b.Warnings, fmt.Sprintf("device %s is attached to environment %s again, whose processes use it: the attachment was missing in the copy",
		index, snapshot.Shown(string(env.EID))))
}
