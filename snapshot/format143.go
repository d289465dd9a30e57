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

// DecodeSnapshot reads what `genv usage snapshot` of 1.4.3 prints. What can't be read of an
// item is left out, and named in the Warnings. The error wraps ErrInvalid, and says that the
// document as a whole can't be read.
func DecodeSnapshot(data []byte) (*Snapshot, error) {
	s, odd, err := decode143(data, document143.decode)
	if err != nil {
		return nil, err
	}
	s.Warnings = odd
	return s, nil
}

// DecodeProcesses reads what EncodeProcesses writes, if all of it can be read.
func DecodeProcesses(data []byte) ([]Process, error) {
	return strictly(decode143(data, processes143.decode))
}

// DecodeEnvironments reads what EncodeEnvironments writes, if all of it can be read.
func DecodeEnvironments(data []byte) ([]Environment, error) {
	return strictly(ReadEnvironments(data))
}

// ReadEnvironments is DecodeEnvironments, but leaves out what can't be read, and names it.
func ReadEnvironments(data []byte) (environments []Environment, odd []string, err error) {
	return decode143(data, environments143.decode)
}

// DecodeDevices reads what EncodeDevices writes, if all of it can be read.
func DecodeDevices(data []byte) ([]Device, error) { return strictly(ReadDevices(data)) }

// ReadDevices is DecodeDevices, but leaves out what can't be read, and names it.
func ReadDevices(data []byte) (devices []Device, odd []string, err error) {
	return decode143(data, devices143.decode)
}

// strictly makes an error of what was left out.
func strictly[Model any](model Model, odd []string, err error) (Model, error) {
	if err == nil && len(odd) > 0 {
		err = fmt.Errorf("%w: %s", ErrInvalid, odd[0])
	}
	if err != nil {
		var none Model
		return none, err
	}
	return model, nil
}

func decode143[Document, Model any](data []byte, decode func(Document, *reader) (Model, error)) (model Model, odd []string, err error) {
	var document Document
	var r reader
	if err := r.unmarshalExact(data, &document, reflect.TypeFor[Document]()); err != nil {
		return model, nil, err
	}
	model, err = decode(document, &r)
	return model, r.warnings(), err
}

func (d document143) decode(r *reader) (*Snapshot, error) {
	processes, badProcesses := d.Processes.decode(r)
	environments, badEnvironments := d.Environments.decode(r)
	devices, badDevices := d.Devices.decode(r)
	if err := cmp.Or(badProcesses, badEnvironments, badDevices); err != nil {
		return nil, err
	}
	return &Snapshot{Processes: processes, Environments: environments, Devices: devices}, nil
}

func (d processes143) decode(r *reader) ([]Process, error) {
	return fromWire(r, d.Processes, "process", maxProcesses, wireProcess.process, idOfProcess)
}

func (d environments143) decode(r *reader) ([]Environment, error) {
	return boundedTogether(fromWire(r, d.Environments, "environment", maxEnvironments, wireEnvironment.environment, idOfEnvironment))
}

// decode names devices with unknown memory, which 1.4.3 never writes.
func (d devices143) decode(r *reader) ([]Device, error) {
	return fromWire(r, joined(d.Devices, r), "device", maxDevices, func(w wireDevice, r *reader) (Device, error) {
		if w.TotalMemory == "" {
			r.leaveOut("total_memory", errMissing)
		}
		return w.device(r)
	}, idOfDevice)
}

// joined has the attachments of two rows of one device in the first: which row is right isn't
// known, and no environment is to lose an attachment.
func joined(rows []wireDevice, r *reader) (list []wireDevice) {
	first := make(map[DeviceIndex]int)
	for _, row := range rows {
		if row.Index == nil {
			list = append(list, row)
			continue
		}
		i, twice := first[*row.Index]
		if !twice {
			first[*row.Index] = len(list)
			list = append(list, row)
			continue
		}
		list[i].Attachments = append(list[i].Attachments, row.Attachments...)
		if len(r.notes) < maxNotes {
			r.notes = append(r.notes, fmt.Sprintf("device %d is listed twice: it has the attachments of both", *row.Index))
		}
	}
	return list
}

// UnmarshalExact is json.Unmarshal for the format of 1.4.3: every object must have
// exactly the keys of its Go type, and only a pointer may be null. Its error wraps
// ErrInvalid, also if the document has too many values.
func UnmarshalExact[T any](data []byte, into *T) error {
	var r reader
	err := r.unmarshalExact(data, into, reflect.TypeFor[T]())
	_, err = strictly(into, r.warnings(), err)
	return err
}

func (r *reader) unmarshalExact(data []byte, into any, t reflect.Type) error {
	if err := CheckAmount(data); err != nil {
		return err
	}
	if err := r.checkKeys("document", data, t); err != nil {
		return err
	}
	return r.unmarshal(data, into)
}

// checkKeys refuses a named value if an object in it does not have exactly the keys of
// its Go type, or if something other than a pointer is null.
func (r *reader) checkKeys(name string, data []byte, t reflect.Type) error {
	switch {
	case t.Kind() == reflect.Pointer:
		return nil
	case string(data) == "null":
		return fmt.Errorf("%w: %s is null", ErrInvalid, name)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return r.checkItems(data, t.Elem())
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
		if err := r.checkKeys(key, value, field.Type); err != nil {
			return err
		}
		delete(fields, key)
	}
	if len(fields) > 0 {
		return fmt.Errorf("%w: %w: %.100q", ErrInvalid, ErrOtherVersion, slices.Min(slices.Collect(maps.Keys(fields))))
	}
	return nil
}

// checkItems refuses a list if another version wrote all of its items. In a list of an item it
// only notes which ones it refuses.
func (r *reader) checkItems(data []byte, t reflect.Type) error {
	var items []json.RawMessage
	if err := unmarshal(data, &items); err != nil {
		return err
	}
	var first error
	others := 0
	r.path = append(r.path, place{})
	for i, item := range items {
		r.path[len(r.path)-1] = place{name: strings.ToLower(strings.TrimPrefix(t.Name(), "wire")), number: i} // as in fromWire
		if err := r.checkKeys("item", item, t); err != nil {
			r.leaveOut("a part", err)
			if first = cmp.Or(first, err); errors.Is(err, ErrOtherVersion) {
				others++
			}
		}
	}
	if r.path = r.path[:len(r.path)-1]; len(r.path) == 0 && others == len(items) {
		return first
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
	const hex = "0123456789abcdef"
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r < 0x7f {
			out = append(out, data[0])
		} else {
			for _, unit := range utf16.AppendRune(nil, r) {
				out = append(out, '\\', 'u', hex[unit>>12], hex[unit>>8&15], hex[unit>>4&15], hex[unit&15])
			}
		}
		data = data[size:]
	}
	return out
}
