package local

import (
	"context"

	"github.com/seed-3119e985/genv/snapshot"
)

// Found asks nvidia-smi for the devices that are there now, without their
// attachments, for Books to register. It does not look at the books.
func (m *Machine) Found(ctx context.Context) ([]snapshot.Device, error) {
	inventory, err := m.ask(ctx)
	if err != nil {
		return nil, err
	}
	return inventory.found(), nil
}
