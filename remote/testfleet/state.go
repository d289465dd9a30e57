package testfleet

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-3119e985/genv/snapshot"
)

// WriteState writes envs.json and devices.json of the machine as genv 1.4.3
// would: all of its devices, with the attachments that are given for an index.
// It takes no lock; call it before anybody else uses the machine.
func (m *Machine) WriteState(environments []snapshot.Environment, attached map[snapshot.DeviceIndex][]snapshot.Attachment) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var devices []snapshot.Device
	for _, d := range m.gpus.Devices {
		index := snapshot.DeviceIndex(d.Index)
		devices = append(devices, snapshot.Device{
			Index: index, TotalMemory: snapshot.MiB(d.TotalMiB), Attachments: attached[index],
		})
	}
	envs, err := snapshot.EncodeEnvironments(environments)
	if err != nil {
		return err
	}
	books, err := snapshot.EncodeDevices(devices)
	if err != nil {
		return err
	}
	if err := m.writeShared("envs.json", envs); err != nil {
		return err
	}
	return m.writeShared("devices.json", books)
}

// writeShared writes a file that every user may write, as genv's state is.
func (m *Machine) writeShared(name string, data []byte) error {
	path := filepath.Join(m.StateDir(), name)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		return fmt.Errorf("write a simulated host's state: %w", err)
	}
	if err := os.Chmod(path, 0o666); err != nil { // whatever the umask
		return fmt.Errorf("write a simulated host's state: %w", err)
	}
	return nil
}
