package snapshot

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrInvalid is wrapped by every decoding error of this package. No part of the
// document may be used then.
var ErrInvalid = errors.New("not a valid genv document")

// ErrOtherVersion is wrapped together with ErrInvalid if an object has keys that
// 1.4.3 does not know: another version wrote it.
var ErrOtherVersion = errors.New("the keys are those of another version")

// The documents of 1.4.3. It decodes an object by its exact set of keys, so no key may
// be added here or in the wire types.
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
// prints it, without the newline at the end. It omits what the format can't express:
// see Expressible.
func EncodeSnapshot(s *Snapshot) ([]byte, error) {
	return encode143(document143{
		Processes:    processes143{expressibleProcesses(judgedUsage(s))},
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

// Expressible says whether the 1.4.3 format can express the process without
// guessing: "eid": null means that it is outside all environments there, and an amount
// of memory can't be unknown. Other processes are omitted, so that a 1.4.3 controller
// never terminates them because of a guess; the host reports them on stderr.
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

// judgedUsage are the processes without what they use of devices that no rule is about: a 1.4.3
// controller judges all that it is shown.
func judgedUsage(s *Snapshot) []Process {
	spared := make(map[DeviceIndex]bool)
	for i := range s.Devices {
		if d := &s.Devices[i]; !d.Judged() {
			spared[d.Index] = true
		}
	}
	if len(spared) == 0 {
		return s.Processes
	}
	processes := slices.Clone(s.Processes)
	for i := range processes {
		processes[i].Usage = slices.DeleteFunc(slices.Clone(processes[i].Usage), func(u DeviceUsage) bool { return spared[u.Index] })
	}
	return processes
}

// expressibleDevices are the devices with known memory.
func expressibleDevices(devices []Device) []Device {
	return slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return !d.TotalMemory.Known() })
}

// DecodeSnapshot reads what `genv usage snapshot` of 1.4.3 prints. It checks every
// field; its error wraps ErrInvalid and names the field.
func DecodeSnapshot(data []byte) (*Snapshot, error) { return decode143(data, document143.decode) }

// DecodeProcesses reads what EncodeProcesses writes.
func DecodeProcesses(data []byte) ([]Process, error) { return decode143(data, processes143.decode) }

// DecodeEnvironments reads what EncodeEnvironments writes.
func DecodeEnvironments(data []byte) ([]Environment, error) {
	return decode143(data, environments143.decode)
}

// DecodeDevices reads what EncodeDevices writes.
func DecodeDevices(data []byte) ([]Device, error) { return decode143(data, devices143.decode) }

func decode143[Document, Model any](data []byte, decode func(Document) (Model, error)) (model Model, err error) {
	var document Document
	if err := UnmarshalExact(data, &document); err != nil {
		return model, err
	}
	return decode(document)
}

func (d document143) decode() (*Snapshot, error) {
	processes, badProcesses := d.Processes.decode()
	environments, badEnvironments := d.Environments.decode()
	devices, badDevices := d.Devices.decode()
	if err := cmp.Or(badProcesses, badEnvironments, badDevices); err != nil {
		return nil, err
	}
	return &Snapshot{Processes: processes, Environments: environments, Devices: devices}, nil
}

func (d processes143) decode() ([]Process, error) {
	return fromWire(d.Processes, "process", maxProcesses, wireProcess.process, idOfProcess)
}

func (d environments143) decode() ([]Environment, error) {
	return boundedTogether(fromWire(d.Environments, "environment", maxEnvironments, wireEnvironment.environment, idOfEnvironment))
}

// decode refuses devices with unknown memory, which 1.4.3 never writes.
func (d devices143) decode() ([]Device, error) {
	devices, err := fromWire(d.Devices, "device", maxDevices, wireDevice.device, idOfDevice)
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
// exactly the keys of its Go type, and only a pointer may be null. Its error wraps
// ErrInvalid, also if the document has too many values.
func UnmarshalExact[T any](data []byte, into *T) error {
	if err := checkAmount(data); err != nil {
		return err
	}
	if err := checkKeys("document", data, reflect.TypeFor[T]()); err != nil {
		return err
	}
	return unmarshal(data, into)
}

// checkKeys refuses a named value if an object in it does not have exactly the keys of
// its Go type, or if something other than a pointer is null.
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
	name := strings.ToLower(strings.TrimPrefix(t.Name(), "wire")) // as in fromWire
	for i, item := range items {
		if err := checkKeys(name, item, t); err != nil {
			return fmt.Errorf("%s %d: %w", name, i, err)
		}
	}
	return nil
}

// encode143 writes JSON as Python's json.dumps(indent=2) does: it does not escape HTML,
// but everything outside printable ASCII.
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

// escapeNonASCII works on whole JSON, since only strings can contain such runes.
func escapeNonASCII(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r < 0x7f {
			out = append(out, data[0])
		} else {
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
		data = data[size:]
	}
	return out
}
