package order

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
)

// MaxBytes is how long an order may be that is read: far more than a host of 1024
// devices needs, and little enough to fit in any memory.
const MaxBytes = 16 << 20

// maxDevices is one more than the highest device index that the codec of
// package snapshot reads.
const maxDevices = 1024

// object143 names the keys of 1.4.3. It decodes an object by its exact set of
// keys: nothing may be added.
type object143 struct {
	Terminate json.RawMessage            `json:"terminate"` // {"processes": […]}
	Detach    map[string]json.RawMessage `json:"detach"`    // {"<device index>": {"envs": […]}}
}

// Encode143 writes an order as `genv usage execute` of 1.4.3 reads it on
// stdin: one line, without a newline. The format has no start times, grace,
// SIGKILL, names or ids of findings. It can't express an unknown environment or
// memory of a process either: that is an error (check Process.Expressible first),
// so that no item is left out silently.
func Encode143(o Order) ([]byte, error) {
	terminate, err := encodeTerminations(o.Terminate)
	if err != nil {
		return nil, err
	}
	detach, err := encodeDetachments(o.Detach)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object143{Terminate: terminate, Detach: detach}); err != nil {
		return nil, fmt.Errorf("encode order: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func encodeTerminations(items []Termination) (json.RawMessage, error) {
	processes := make([]snapshot.Process, 0, len(items))
	for i := range items {
		p := &items[i].Process
		if !p.Expressible() {
			return nil, fmt.Errorf("encode order: process %d has an unknown environment or memory, which the 1.4.3 "+
				"format cannot express", p.PID)
		}
		processes = append(processes, *p)
	}
	return snapshot.EncodeProcesses(processes)
}

func encodeDetachments(items []Detachment) (map[string]json.RawMessage, error) {
	byDevice := map[string][]snapshot.Environment{}
	for i := range items {
		key := items[i].Device.String()
		byDevice[key] = append(byDevice[key], items[i].Environment)
	}
	out := make(map[string]json.RawMessage, len(byDevice))
	for key, envs := range byDevice {
		data, err := snapshot.EncodeEnvironments(envs)
		if err != nil {
			return nil, fmt.Errorf("encode order: device %s: %w", key, err)
		}
		out[key] = data
	}
	return out, nil
}

// Decode143 reads what a controller of 1.4.3, or Encode143, wrote. Every
// field is checked; an error wraps snapshot.ErrInvalid and names the place, and
// then nothing of the order may be carried out. The order of the items is the
// Order's own, whatever order they were written in.
func Decode143(data []byte) (Order, error) {
	if err := checkSize(data); err != nil {
		return Order{}, err
	}
	var fields object143
	if err := snapshot.UnmarshalExact(data, &fields); err != nil {
		return Order{}, err
	}
	processes, err := snapshot.DecodeProcesses(fields.Terminate)
	if err != nil {
		return Order{}, fmt.Errorf("terminate: %w", err)
	}
	detach, err := decodeDetachments(fields.Detach)
	if err != nil {
		return Order{}, fmt.Errorf("detach: %w", err)
	}
	o := Order{Terminate: terminationsOf(processes), Detach: detach}
	o.Sort()
	return o, nil
}

func checkSize(data []byte) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("%w: an order of %d bytes is longer than the %d that are read", snapshot.ErrInvalid,
			len(data), MaxBytes)
	}
	return nil
}

func terminationsOf(processes []snapshot.Process) []Termination {
	var items []Termination
	for i := range processes {
		items = append(items, Termination{Process: processes[i]})
	}
	return items
}

func decodeDetachments(devices map[string]json.RawMessage) ([]Detachment, error) {
	var items []Detachment
	for key, raw := range devices {
		index, err := strconv.ParseUint(key, 10, 16)
		if err != nil || index >= maxDevices || strconv.FormatUint(index, 10) != key {
			return nil, fmt.Errorf("%w: %q is not a device index", snapshot.ErrInvalid, key)
		}
		envs, err := snapshot.DecodeEnvironments(raw)
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", key, err)
		}
		for i := range envs {
			items = append(items, Detachment{Device: snapshot.DeviceIndex(index), Environment: envs[i]})
		}
	}
	return items, nil
}
