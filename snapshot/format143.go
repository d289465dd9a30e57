package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// ErrInvalid is wrapped by every decoding error of this package. Nothing of the
// text may be used.
var ErrInvalid = errors.New("not a valid genv document")

// ErrOtherVersion is wrapped together with ErrInvalid when an object has keys that
// 1.4.3 does not know: another version wrote it.
var ErrOtherVersion = errors.New("the keys are those of another version")

// The documents of 1.4.3, which decodes an object by its exact set of keys:
// nothing may be added here or in the wire types.
type (
	document143 struct {
		Processes    processes143    `json:"processes"`
		Environments environments143 `json:"envs"`
		Devices      devices143      `json:"devices"`
	}
	processes143 struct {
		Processes []wireProcess `json:"processes"`
	}
	environments143 struct {
		Environments []wireEnvironment `json:"envs"`
	}
	devices143 struct {
		Devices []wireDevice `json:"devices"`
	}
)

// EncodeSnapshot writes a whole snapshot as `genv usage snapshot` of 1.4.3
// prints it, without the newline at the end. What the format cannot carry is
// left out: see Expressible.
func EncodeSnapshot(s *Snapshot) ([]byte, error) {
	return encode143(document143{
		Processes:    processes143{expressibleProcesses(s.Processes)},
		Environments: environments143{environmentsToWire(s.Environments)},
		Devices:      devices143{devicesToWire(expressibleDevices(s.Devices))},
	})
}

// EncodeProcesses writes the part that `--type processes` prints.
func EncodeProcesses(p []Process) ([]byte, error) {
	return encode143(processes143{expressibleProcesses(p)})
}

// EncodeEnvironments writes the part that `--type envs` prints, which is also
// the content of envs.json.
func EncodeEnvironments(e []Environment) ([]byte, error) {
	return encode143(environments143{environmentsToWire(e)})
}

// EncodeDevices writes the part that `--type devices` prints, which is also the
// content of devices.json.
func EncodeDevices(d []Device) ([]byte, error) {
	return encode143(devices143{devicesToWire(expressibleDevices(d))})
}

// Expressible says whether the 1.4.3 format can carry the process without
// guessing: "eid": null means "in no environment" there, and a memory must be a
// number. Other processes are left out of that format, so that a 1.4.3 controller
// never ends them because of a guess; the host reports them on stderr.
func (p *Process) Expressible() bool {
	unknown := func(u DeviceUsage) bool { return !u.Memory.Known() }
	return !p.EnvUnknown && len(p.Usage) > 0 && !slices.ContainsFunc(p.Usage, unknown)
}

func expressibleProcesses(processes []Process) []wireProcess {
	out := make([]wireProcess, 0, len(processes))
	for i := range processes {
		if p := &processes[i]; p.Expressible() {
			out = append(out, processToWire(p))
		}
	}
	return out
}

// expressibleDevices are those of which the memory is known.
func expressibleDevices(devices []Device) []Device {
	return slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return !d.TotalMemory.Known() })
}

// DecodeSnapshot reads what `genv usage snapshot` of 1.4.3 printed. Every field
// is checked; an error wraps ErrInvalid and names the place.
func DecodeSnapshot(data []byte) (*Snapshot, error) {
	var document document143
	if err := UnmarshalExact(data, &document); err != nil {
		return nil, err
	}
	s := &Snapshot{}
	var err error
	if s.Processes, err = processesFromWire(document.Processes.Processes); err != nil {
		return nil, err
	}
	if s.Environments, err = environmentsFromWire(document.Environments.Environments); err != nil {
		return nil, err
	}
	s.Devices, err = document.Devices.decode()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// DecodeProcesses reads what EncodeProcesses wrote.
func DecodeProcesses(data []byte) ([]Process, error) {
	var document processes143
	if err := UnmarshalExact(data, &document); err != nil {
		return nil, err
	}
	return processesFromWire(document.Processes)
}

// DecodeEnvironments reads what EncodeEnvironments wrote.
func DecodeEnvironments(data []byte) ([]Environment, error) {
	var document environments143
	if err := UnmarshalExact(data, &document); err != nil {
		return nil, err
	}
	return environmentsFromWire(document.Environments)
}

// DecodeDevices reads what EncodeDevices wrote.
func DecodeDevices(data []byte) ([]Device, error) {
	var document devices143
	if err := UnmarshalExact(data, &document); err != nil {
		return nil, err
	}
	return document.decode()
}

// decode refuses devices of unknown memory, which 1.4.3 never writes.
func (d devices143) decode() ([]Device, error) {
	devices, err := devicesFromWire(d.Devices)
	if err != nil {
		return nil, err
	}
	for i := range devices {
		if !devices[i].TotalMemory.Known() {
			return nil, fmt.Errorf("%w: device %d: total_memory is missing", ErrInvalid, devices[i].Index)
		}
	}
	return devices, nil
}

// UnmarshalExact is json.Unmarshal for the format of 1.4.3: every object must have
// exactly the keys of its Go type, and nothing may be null that is not a pointer
// there. Its error wraps ErrInvalid, also for more values than are read.
func UnmarshalExact[T any](data []byte, into *T) error {
	if err := checkAmount(data); err != nil {
		return err
	}
	if err := checkKeys("document", data, reflect.TypeFor[T]()); err != nil {
		return err
	}
	return unmarshal(data, into)
}

// checkKeys says whether every object in a named value has exactly the keys of its
// Go type, and whether anything is null that is not a pointer there.
func checkKeys(name string, data []byte, t reflect.Type) error {
	switch {
	case t.Kind() == reflect.Pointer:
		return nil
	case string(data) == "null":
		return fmt.Errorf("%w: %s is null", ErrInvalid, name)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return checkItems(data, t.Elem())
	case t.Kind() != reflect.Struct:
		return nil
	}
	var fields map[string]json.RawMessage
	if err := unmarshal(data, &fields); err != nil {
		return err
	}
	for i := range t.NumField() {
		field := t.Field(i)
		key := field.Tag.Get("json")
		value, ok := fields[key]
		if !ok {
			return fmt.Errorf("%w: the key %q is missing", ErrInvalid, key)
		}
		if err := checkKeys(key, value, field.Type); err != nil {
			return err
		}
		delete(fields, key)
	}
	if len(fields) > 0 {
		return fmt.Errorf("%w: %w: %.100q", ErrInvalid, ErrOtherVersion, slices.Min(slices.Collect(maps.Keys(fields))))
	}
	return nil
}

func checkItems(data []byte, t reflect.Type) error {
	var items []json.RawMessage
	if err := unmarshal(data, &items); err != nil {
		return err
	}
	name := strings.ToLower(strings.TrimPrefix(t.Name(), "wire")) // as fromWire calls them
	for i, item := range items {
		if err := checkKeys(name, item, t); err != nil {
			return fmt.Errorf("%s %d: %w", name, i, err)
		}
	}
	return nil
}

// encode143 writes JSON as Python's json.dumps(indent=2) does: HTML stays as it
// is, everything outside printable ASCII is escaped.
func encode143(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	return escapeNonASCII(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// escapeNonASCII works on whole JSON, since only strings can hold such runes.
func escapeNonASCII(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r < 0x7f:
			out = append(out, data[0])
		case r < 0x10000:
			out = appendEscape(out, r)
		default: // a surrogate pair
			out = appendEscape(out, 0xd800+(r-0x10000)>>10)
			out = appendEscape(out, 0xdc00+(r-0x10000)&0x3ff)
		}
		data = data[size:]
	}
	return out
}

func appendEscape(out []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	return append(out, '\\', 'u', hex[r>>12], hex[r>>8&0xf], hex[r>>4&0xf], hex[r&0xf])
}
