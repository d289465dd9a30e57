package state

import (
	"bytes"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// What the state files may hold: well below what a controller reads of a host,
// since any user may write them, and what is valid here but too much there would
// keep the whole host from being enforced.
const (
	maxValues      = 1 << 18 // in each file; there are commas between them
	maxAttachments = 10_000  // of all devices
)

// decodeEnvironments reads envs.json.
func decodeEnvironments(data []byte) ([]snapshot.Environment, error) {
	if err := checkAmount(data); err != nil {
		return nil, err
	}
	environments, err := snapshot.DecodeEnvironments(data)
	for i := range environments {
		e := &environments[i]
		if err := checkNames(append([]string{string(e.EID), string(e.Username), e.Config.Name}, e.KernelIDs...)...); err != nil {
			return nil, err
		}
	}
	return environments, err
}

// decodeDevices reads devices.json.
func decodeDevices(data []byte) ([]snapshot.Device, error) {
	if err := checkAmount(data); err != nil {
		return nil, err
	}
	devices, err := snapshot.DecodeDevices(data)
	attachments := 0
	for i := range devices {
		for _, a := range devices[i].Attachments {
			if err := checkNames(string(a.EID)); err != nil {
				return nil, err
			}
		}
		if attachments += len(devices[i].Attachments); attachments > maxAttachments {
			return nil, fmt.Errorf("%w: more than %d attachments", snapshot.ErrInvalid, maxAttachments)
		}
	}
	return devices, err
}

func checkAmount(data []byte) error {
	if n := bytes.Count(data, []byte{','}); n > maxValues {
		return fmt.Errorf("%w: %d values are more than the %d that are read", snapshot.ErrInvalid, n, maxValues)
	}
	return nil
}

func checkNames(texts ...string) error {
	for _, text := range texts {
		if err := snapshot.CheckName("a text", text); err != nil {
			return err
		}
	}
	return nil
}
