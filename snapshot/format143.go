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

// ErrInvalid is wrapped by every decoding error of this package. Use no part of the document then.
var ErrInvalid = errors.New("not a valid genv document")

// ErrOtherVersion is wrapped besides ErrInvalid if an object has keys that 1.4.3 does not know.
var ErrOtherVersion = errors.New("the keys are those of another version")

// The documents of 1.4.3, with exactly these keys, which are decoded into the types of our own format.
type (
	document143[P, E, D any] struct {
		Processes    processes143[P]    `json:"processes"`
		Environments environments143[E] `json:"envs"`
		Devices      devices143[D]      `json:"devices"`
	}
	processes143[P any] struct {
		Processes []P `json:"processes"`
	}
	environments143[E any] struct {
		Environments []E `json:"envs"`
	}
	devices143[D any] struct {
		Devices []D `json:"devices"`
	}
	process143 struct {
		PID   PID        `json:"pid"`
		Usage []usage143 `json:"used_gpu_memory"`
		EID   *EnvID     `json:"eid"`
	}
	usage143 struct {
		Index  *DeviceIndex `json:"index"`
		Memory *string      `json:"gpu_memory"`
	}
	environment143 struct {
		EID       EnvID     `json:"eid"`
		UID       *UID      `json:"uid"`
		Creation  string    `json:"creation"`
		Username  *Username `json:"username"`
		Config    config143 `json:"config"`
		PIDs      []PID     `json:"pids"`
		KernelIDs []string  `json:"kernel_ids"`
	}
	config143 struct {
		Name      *string `json:"name"`
		GPUMemory *string `json:"gpu_memory"`
		GPUs      *int    `json:"gpus"`
	}
	device143 struct {
		Index       *DeviceIndex    `json:"index"`
		TotalMemory string          `json:"total_memory"`
		Attachments []attachment143 `json:"attachments"`
	}
	attachment143 struct {
		EID       EnvID   `json:"eid"`
		GPUMemory *string `json:"gpu_memory"`
		Time      string  `json:"time"`
	}
)

// EncodeSnapshot writes what `genv usage snapshot` of 1.4.3 prints, without the newline and what isn't Expressible.
func EncodeSnapshot(s *Snapshot) ([]byte, error) {
	return encode143(document143[process143, environment143, device143]{
		Processes:    processes143[process143]{expressibleProcesses(judgedUsage(s))},
		Environments: environments143[environment143]{environmentsOf(s.Environments)},
		Devices:      devices143[device143]{devicesOf(expressibleDevices(s.Devices))},
	})
}

// EncodeProcesses writes what `--type processes` prints.
func EncodeProcesses(p []Process) ([]byte, error) {
	return encode143(processes143[process143]{expressibleProcesses(p)})
}

// EncodeEnvironments writes what `--type envs` prints and envs.json has.
func EncodeEnvironments(e []Environment) ([]byte, error) {
	return encode143(environments143[environment143]{environmentsOf(e)})
}

// EncodeDevices writes what `--type devices` prints and devices.json has.
func EncodeDevices(d []Device) ([]byte, error) {
	return encode143(devices143[device143]{devicesOf(expressibleDevices(d))})
}

// Expressible says whether 1.4.3's format can express the process: there, null for "eid" means outside all
// environments, and memory can't be unknown. A 1.4.3 controller sees no other processes, and so ends none.
func (p *Process) Expressible() bool {
	unknown := func(u DeviceUsage) bool { return !u.Memory.Known() }
	return !p.EnvUnknown && len(p.Usage) > 0 && !slices.ContainsFunc(p.Usage, unknown)
}

func expressibleProcesses(processes []Process) []process143 {
	out := make([]process143, 0, len(processes))
	for i := range processes {
		p := &processes[i]
		if !p.Expressible() {
			continue
		}
		w := process143{PID: p.PID, EID: orNull(p.EID), Usage: make([]usage143, len(p.Usage))}
		for k := range p.Usage {
			w.Usage[k] = usage143{Index: &p.Usage[k].Index, Memory: orNull(p.Usage[k].Memory.String())}
		}
		out = append(out, w)
	}
	return out
}

func environmentsOf(envs []Environment) []environment143 {
	out := make([]environment143, len(envs))
	for i := range envs {
		e := &envs[i]
		config := config143{orNull(e.Config.Name), orNull(e.Config.GPUMemory.String()), e.Config.GPUs}
		out[i] = environment143{
			EID: e.EID, UID: &e.UID, Creation: e.Creation.String(), Username: orNull(e.Username),
			Config: config, PIDs: orEmpty(e.PIDs), KernelIDs: orEmpty(e.KernelIDs),
		}
	}
	return out
}

func devicesOf(devices []Device) []device143 {
	out := make([]device143, len(devices))
	for i := range devices {
		d := &devices[i]
		attachments := make([]attachment143, len(d.Attachments))
		for k, a := range d.Attachments {
			attachments[k] = attachment143{a.EID, orNull(a.GPUMemory.String()), a.Time.String()}
		}
		out[i] = device143{Index: &d.Index, TotalMemory: d.TotalMemory.String(), Attachments: attachments}
	}
	return out
}

// judgedUsage leaves out uses of devices without rules: a 1.4.3 controller judges all that it sees.
func judgedUsage(s *Snapshot) []Process {
	spared := func(u DeviceUsage) bool {
		d := s.Device(u.Index)
		return d != nil && !d.Judged()
	}
	processes := slices.Clone(s.Processes)
	for i := range processes {
		processes[i].Usage = slices.DeleteFunc(slices.Clone(processes[i].Usage), spared)
	}
	return processes
}

func expressibleDevices(devices []Device) []Device {
	return slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return !d.TotalMemory.Known() })
}

// DecodeSnapshot is DecodeNative for the output of `genv usage snapshot` of 1.4.3.
func DecodeSnapshot(data []byte) (*Snapshot, error) {
	type exact = document143[process143, environment143, device143]
	type read = document143[processOf, environmentOf, deviceOf]
	s, odd, err := decode143[exact](data, func(d *read, r *reader) (*Snapshot, error) {
		s := new(Snapshot)
		return s, r.parts(s, d.Processes.Processes, d.Environments.Environments, rows143(r, d.Devices.Devices))
	})
	if err != nil {
		return nil, err
	}
	s.Warnings = odd
	markOfMachine(s.Devices)
	return s, nil
}

// DecodeProcesses reads what EncodeProcesses writes; anything invalid is an error.
func DecodeProcesses(data []byte) ([]Process, error) {
	type exact = processes143[process143]
	return strictly(decode143[exact](data, func(d *processes143[processOf], r *reader) ([]Process, error) {
		return r.processes(d.Processes)
	}))
}

// DecodeEnvironments reads what EncodeEnvironments writes; anything invalid is an error.
func DecodeEnvironments(data []byte) ([]Environment, error) {
	return strictly(ReadEnvironments(data))
}

// ReadEnvironments is DecodeEnvironments, but leaves out invalid values, and names them in odd.
func ReadEnvironments(data []byte) (environments []Environment, odd []string, err error) {
	type exact = environments143[environment143]
	return decode143[exact](data, func(d *environments143[environmentOf], r *reader) ([]Environment, error) {
		return r.environments(d.Environments)
	})
}

// DecodeDevices reads what EncodeDevices writes; anything invalid is an error.
func DecodeDevices(data []byte) ([]Device, error) { return strictly(ReadDevices(data)) }

// ReadDevices is DecodeDevices, but leaves out invalid values, and names them in odd.
func ReadDevices(data []byte) (devices []Device, odd []string, err error) {
	type exact = devices143[device143]
	devices, odd, err = decode143[exact](data, func(d *devices143[deviceOf], r *reader) ([]Device, error) {
		return r.devices(rows143(r, d.Devices))
	})
	markOfMachine(devices)
	return devices, odd, err
}

func markOfMachine(devices []Device) {
	for i := range devices {
		devices[i].Unified = devices[i].TotalMemory.OfMachine()
	}
}

func strictly[Model any](model Model, odd []string, err error) (Model, error) {
	if err == nil && len(odd) > 0 {
		err = fmt.Errorf("%w: %s", ErrInvalid, odd[0])
	}
	if err != nil {
		return *new(Model), err
	}
	return model, nil
}

func decode143[Exact, Doc, Model any](data []byte, read func(*Doc, *reader) (Model, error)) (
	model Model, odd []string, err error,
) {
	var document Doc
	var r reader
	if err := r.unmarshalExact(data, &document, reflect.TypeFor[Exact]()); err != nil {
		return model, nil, err
	}
	model, err = read(&document, &r)
	return model, r.warnings(), err
}

// rows143 notes unknown memory, and merges two rows of a device, so that no environment loses an attachment.
func rows143(r *reader, rows []deviceOf) (list []deviceOf) {
	first := make(map[DeviceIndex]int)
	for i, row := range rows {
		if row.TotalMemory == nil || !row.TotalMemory.Known() {
			row.TotalMemory = &Memory{}
			r.note(fmt.Sprintf("GPU no. %d of the list: total_memory is left out: %v", i+1, errMissing))
		}
		if row.Index == nil {
			list = append(list, row)
			continue
		}
		before, twice := first[*row.Index]
		if !twice {
			first[*row.Index] = len(list)
			list = append(list, row)
			continue
		}
		list[before].Attachments = append(list[before].Attachments, row.Attachments...)
		r.note(fmt.Sprintf("GPU %d is listed twice: it has the attachments of both", *row.Index))
	}
	return list
}

// UnmarshalExact is json.Unmarshal for objects with exactly the keys of their type; only pointers may be null.
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

// checkKeys refuses missing and unknown keys, and null for anything but a pointer.
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
	for field := range t.Fields() {
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

// checkItems refuses a list if another version wrote all its items, and notes other odd items.
func (r *reader) checkItems(data []byte, t reflect.Type) error {
	var items []json.RawMessage
	if err := unmarshal(data, &items); err != nil {
		return err
	}
	var first error
	others := 0
	r.path = append(r.path, listItem{})
	for i, item := range items {
		r.path[len(r.path)-1] = listItem{name: strings.TrimSuffix(t.Name(), "143"), number: i} // as in kept
		if err := r.checkKeys("item", item, t); r.leaveOut("a part", err) {
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

// encode143 writes JSON like Python's json.dumps(indent=2), which escapes all but printable ASCII.
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

// escapeNonASCII works on whole JSON, since such runes are only in strings.
func escapeNonASCII(data []byte) (out []byte) {
	const hex = "0123456789abcdef"
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
