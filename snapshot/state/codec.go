package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
)

// File is one of the two state files, which genv 1.4.3 uses too.
type File int

const (
	Envs File = iota
	Devices
)

func (f File) String() string { return [...]string{"envs.json", "devices.json"}[f] }

// Contents has the bytes of both state files; nil if missing.
type Contents [2][]byte

// Same says whether contents are equal. A missing file isn't an empty one.
func Same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// Limits of the files that any user may write: far below a controller's, which refuses the whole host.
const (
	maxValues      = 1 << 18 // per file, counted by commas
	maxOlderValues = 1 << 14 // per file of an older version: converting takes kilobytes per value
	maxAttachments = 10_000  // on all devices
)

// Decode reads a state file, also of earlier versions. It skips unreadable parts with a warning. An error, which wraps
// snapshot.ErrInvalid, is about the whole file.
func (f *Files) Decode(file File, data []byte) error {
	values := bytes.Count(data, []byte{','})
	if values > maxValues {
		return fmt.Errorf("%w: %d values, more than the limit of %d", snapshot.ErrInvalid, values, maxValues)
	}
	err := f.decode(file, data)
	if err == nil || values > maxOlderValues {
		return err
	}
	older, ok := converted(file, data)
	named := len(f.Warnings)
	if ok && f.decode(file, older) == nil && len(f.Warnings) == named {
		return nil
	}
	f.Warnings = f.Warnings[:named]
	return err
}

func (f *Files) decode(file File, data []byte) (err error) {
	var odd []string
	if file == Envs {
		f.Environments, odd, err = snapshot.ReadEnvironments(data)
	} else {
		f.Devices, odd, err = readDevices(data)
	}
	for _, note := range odd {
		f.Warn("%s: %s", file, note)
	}
	return err
}

// Encode returns the content of a state file; nil for no devices.json.
func (f *Files) Encode(file File) ([]byte, error) {
	switch {
	case file == Envs:
		return snapshot.EncodeEnvironments(f.Environments)
	case f.Devices == nil:
		return nil, nil
	}
	return snapshot.EncodeDevices(f.Devices)
}

// readDevices reads devices.json. Attachments to a device with unknown memory remain.
func readDevices(data []byte) ([]snapshot.Device, []string, error) {
	devices, odd, err := snapshot.ReadDevices(data)
	attachments := 0
	for i := range devices {
		if d := &devices[i]; !d.TotalMemory.Known() {
			d.TotalMemory = snapshot.MiB(0) // needed to write the device
		}
		if attachments += len(devices[i].Attachments); attachments > maxAttachments {
			return nil, nil, fmt.Errorf("%w: more than %d attachments", snapshot.ErrInvalid, maxAttachments)
		}
	}
	return devices, odd, err
}

// Errors that callers distinguish with errors.Is.
var (
	// ErrNoDevices means that there is no devices.json: pass nvidia-smi's answer to disk.Store.RegisterDevices.
	ErrNoDevices = errors.New("the GPUs of this host are not registered yet")

	ErrUnavailable   = errors.New("not available") // see UnavailableError
	ErrCap           = errors.New("beyond a cap of the policy")
	ErrRequest       = errors.New("not a valid request") // in any state
	ErrNotOwner      = errors.New("not your environment")
	ErrNoEnvironment = errors.New("no such environment")
	ErrActive        = errors.New("already in an active environment")
)

// Refuse returns an error that wraps ErrRequest.
func Refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrRequest, fmt.Errorf(format, args...))
}

// CheckName is snapshot.CheckName, wrapped in ErrRequest.
func CheckName(name, value string) error {
	if err := snapshot.CheckName(name, value); err != nil {
		return Refuse("%w", err)
	}
	return nil
}

// CheckEID checks the id of an environment. The error wraps ErrRequest.
func CheckEID(eid snapshot.EnvID) error {
	if eid == "" {
		return Refuse("an environment needs an id")
	}
	return CheckName("the environment id", string(eid))
}

// CheckMemory refuses zero capacity and overlong texts. The error wraps ErrRequest.
func CheckMemory(m snapshot.Memory) error {
	const maxMemory = 64 // bytes of the text
	switch {
	case len(m.String()) > maxMemory:
		return Refuse("an amount of memory is longer than %d bytes", maxMemory)
	case m.Known() && m.Bytes() == 0:
		return Refuse("a capacity of %s must be greater than zero", m)
	}
	return nil
}

// UnavailableError says why devices are not available. It wraps ErrUnavailable.
type UnavailableError struct {
	Reason    string     `json:"reason"`
	TooFew    bool       `json:"too_few,omitempty"`   // more devices, or the missing one, would help
	Conflicts []Conflict `json:"conflicts,omitempty"` // attachments that prevent the request
}

// Unavailable is an UnavailableError with just a Reason.
func Unavailable(format string, args ...any) error {
	return &UnavailableError{Reason: fmt.Sprintf(format, args...)}
}

func (e *UnavailableError) Error() string { return e.Reason }

func (e *UnavailableError) Unwrap() error { return ErrUnavailable }

// NoDevice is the UnavailableError for an index without a device.
func (f *Files) NoDevice(index snapshot.DeviceIndex) error {
	return &UnavailableError{
		Reason: fmt.Sprintf("There is no GPU %d: this host has %d, see `genv gpus`", index, len(f.Devices)),
		TooFew: true,
	}
}

// converted converts an older state file like 1.4.3. Up to 0.9.0, environments are an object by id, and keys may be
// missing. Up to 0.8.0, so are devices (by index) and their attachments (by id).
func converted(file File, data []byte) (content []byte, ok bool) {
	var document map[string]json.RawMessage
	var older map[string]map[string]any
	name := map[File]string{Envs: "envs", Devices: "devices"}[file]
	if json.Unmarshal(data, &document) != nil || json.Unmarshal(document[name], &older) != nil || older == nil {
		return nil, false
	}
	list := []map[string]any{}
	for _, key := range inOrder(older) {
		entry, ok := convertedEnvironment(key, older[key]), true
		if file == Devices {
			entry, ok = convertedDevice(key, older[key])
		}
		if !ok {
			return nil, false
		}
		list = append(list, entry)
	}
	content, err := json.Marshal(map[string][]map[string]any{name: list})
	return content, err == nil
}

// inOrder sorts an object's keys as numbers, as Go doesn't keep their order.
func inOrder[V any](of map[string]V) []string {
	return slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
}

func convertedEnvironment(key string, older map[string]any) map[string]any {
	e := fieldsOf(older, map[string]any{
		"eid": key, "uid": nil, "creation": nil, "username": nil, "config": nil, "pids": []any{}, "kernel_ids": []any{},
	})
	if config, isObject := e["config"].(map[string]any); isObject || e["config"] == nil {
		e["config"] = fieldsOf(config, map[string]any{"name": nil, "gpu_memory": nil, "gpus": nil})
	}
	return e
}

func convertedDevice(key string, older map[string]any) (device map[string]any, ok bool) {
	index, err := strconv.Atoi(key)
	all, ok := older["eids"].(map[string]any)
	if err != nil || strconv.Itoa(index) != key || !ok && older["eids"] != nil {
		return nil, false
	}
	attachments := []map[string]any{}
	for _, eid := range inOrder(all) {
		a, isObject := all[eid].(map[string]any)
		if !isObject {
			return nil, false
		}
		attachments = append(attachments, fieldsOf(a, map[string]any{
			"eid": eid, "gpu_memory": nil, "time": a["attached"],
		}))
	}
	return map[string]any{"index": index, "total_memory": older["total_memory"], "attachments": attachments}, true
}

// fieldsOf replaces the defaults in fields by o's values.
func fieldsOf(o, fields map[string]any) map[string]any {
	for name := range fields {
		if value := o[name]; value != nil && value != "" {
			fields[name] = value
		}
	}
	return fields
}
