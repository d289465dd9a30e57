package snapshot

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Our own format is the model itself, by its tags; unknown keys are ignored. These types add what tags can't say: a
// pointer where null differs from 0, or another place in JSON than in the model.
type (
	documentOf struct {
		Snapshot
		Processes    []processOf     `json:"processes"`
		Environments []environmentOf `json:"envs"`
		Devices      []deviceOf      `json:"devices"`
		// Colons counts the colons before it, to notice missing keys. Older hosts don't send it.
		Colons int `json:"colons,omitempty"`
	}
	processOf struct {
		*Process
		EID   *EnvID                      `json:"eid"`
		Usage []usageOf                   `json:"used_gpu_memory"`
		Types map[DeviceIndex]ProcessType `json:"types,omitempty"` // of Usage, where known
	}
	usageOf struct {
		Index *DeviceIndex `json:"index"`
		DeviceUsage
	}
	environmentOf struct {
		*Environment
		UID *UID `json:"uid"`
		// Former has indices that older hosts let its shells use after GPUs were renumbered.
		Former []struct {
			Index DeviceIndex `json:"device"`
		} `json:"former,omitempty"`
	}
	deviceOf struct {
		Index *DeviceIndex `json:"index"`
		*Device
		TotalMemory *Memory `json:"total_memory"` // null if it shares the machine's
		// Since and Parts are those of the attachments.
		Since map[EnvID]StartTime `json:"attached_since,omitempty"`
		Parts []partOf            `json:"attached_mig,omitempty"`
	}
	partOf struct {
		EID       EnvID     `json:"eid"`
		Instances []GPUUUID `json:"mig"`
	}
)

// Limits for a host's report: a hostile host can't fill the controller's memory.
const (
	maxProcesses    = maxObjects // before Bound
	maxEnvironments = maxObjects
	maxDevices      = 1024
	maxAttachments  = 65536
	maxPIDs         = 65536        // and kernels of all environments: each is looked up under the lock
	maxTextLength   = 4096         // bytes
	maxWarnings     = 256          // to keep; more are no error, since users can cause warnings
	maxOffset       = 24 * 60 * 60 // seconds from UTC: more than any zone has
)

// EncodeNative writes a snapshot as one line of JSON.
func EncodeNative(s *Snapshot) ([]byte, error) {
	d := documentOf{
		Snapshot: *s, Processes: processesOf(s.Processes),
		Environments: make([]environmentOf, len(s.Environments)), Devices: make([]deviceOf, len(s.Devices)),
	}
	for i := range s.Environments {
		d.Environments[i] = environmentOf{Environment: &s.Environments[i], UID: &s.Environments[i].UID}
	}
	for i := range s.Devices {
		d.Devices[i] = s.Devices[i].document()
	}
	data, err := Marshal(&d)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(data[:len(data)-1], `,"colons":%d}`, bytes.Count(data, []byte{':'})), nil
}

// EncodeNativeProcesses writes processes as EncodeNative does, for orders.
func EncodeNativeProcesses(processes []Process) ([]byte, error) {
	return Marshal(processesOf(processes))
}

// Marshal is json.Marshal without escaping HTML, which makes a user's text up to six times as long.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func processesOf(processes []Process) []processOf {
	list := make([]processOf, len(processes))
	for i := range processes {
		p := &processes[i]
		types := make(map[DeviceIndex]ProcessType)
		d := processOf{Process: p, EID: orNull(p.EID), Usage: make([]usageOf, len(p.Usage)), Types: types}
		for k := range p.Usage {
			u := &p.Usage[k]
			if d.Usage[k] = (usageOf{&u.Index, *u}); u.Type != "" {
				types[u.Index] = u.Type
			}
		}
		list[i] = d
	}
	return list
}

// DecodeNative reads what EncodeNative writes. Invalid parts become warnings; an error, which wraps ErrInvalid, refuses
// the whole.
func DecodeNative(data []byte) (*Snapshot, error) {
	var d documentOf
	var r reader
	if err := r.unmarshal(data, &d); err != nil {
		return nil, err
	}
	switch colons := bytes.Count(data, []byte{':'}) - 1; {
	case d.Processes == nil || d.Environments == nil || d.Devices == nil:
		return nil, fmt.Errorf("%w: a part of the snapshot is missing", ErrInvalid)
	case d.Colons != 0 && d.Colons != colons:
		return nil, fmt.Errorf("%w: it has %d colons instead of %d", ErrInvalid, colons, d.Colons)
	}
	s := d.Snapshot
	s.read(&r)
	if err := cmp.Or(r.parts(&s, d.Processes, d.Environments, d.Devices), r.queue(&s)); err != nil {
		return nil, err
	}
	s.Warnings = append(r.warnings(), keptWarnings(d.Warnings)...)
	return &s, nil
}

func (r *reader) parts(s *Snapshot, processes []processOf, envs []environmentOf, devices []deviceOf) (err error) {
	if s.Processes, err = r.processes(processes); err != nil {
		return err
	}
	if s.Environments, err = r.environments(envs); err != nil {
		return err
	}
	s.Devices, err = r.devices(devices)
	for i := range envs {
		for _, f := range envs[i].Former {
			if d := s.Device(f.Index); d != nil {
				d.Unidentified = true
			}
		}
	}
	return err
}

func (r *reader) processes(list []processOf) ([]Process, error) {
	return kept(r, list, "process", maxProcesses, (*processOf).read, idOfProcess)
}

func (r *reader) environments(list []environmentOf) ([]Environment, error) {
	envs, err := kept(r, list, "environment", maxEnvironments, (*environmentOf).read, idOfEnvironment)
	n := 0
	for i := range envs {
		n += len(envs[i].PIDs) + len(envs[i].KernelIDs)
	}
	if n > maxPIDs {
		return nil, tooMany(n, "pids and kernels", maxPIDs)
	}
	return envs, err
}

func (r *reader) devices(list []deviceOf) ([]Device, error) {
	return kept(r, list, "device", maxDevices, (*deviceOf).read, idOfDevice)
}

// DecodeNativeProcesses reads what EncodeNativeProcesses writes; anything invalid is an error.
func DecodeNativeProcesses(data []byte) ([]Process, error) {
	var list []processOf
	var r reader
	if err := r.unmarshal(data, &list); err != nil {
		return nil, err
	}
	processes, err := r.processes(list)
	return strictly(processes, r.warnings(), err)
}

func idOfProcess(p *Process) PID           { return p.PID }
func idOfEnvironment(e *Environment) EnvID { return e.EID }
func idOfDevice(d *Device) DeviceIndex     { return d.Index }
func idOfUsage(u *DeviceUsage) DeviceIndex { return u.Index }
func idOfAttachment(a *Attachment) EnvID   { return a.EID }

// keptWarnings bounds warnings without escaping them.
func keptWarnings(warnings []string) []string {
	var kept []string
	for _, w := range warnings[:min(len(warnings), maxWarnings)] {
		kept = append(kept, text.Cut(w, maxTextLength))
	}
	if more := len(warnings) - maxWarnings; more > 0 {
		kept = append(kept, fmt.Sprintf("%d more warnings, which are not shown", more))
	}
	return kept
}
