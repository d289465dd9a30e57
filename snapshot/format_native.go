package snapshot

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// The native format is for our own hosts and controllers (genv usage serve): it
// contains everything in a Snapshot, and marks what is unknown. Keys may be added to it:
// a decoder ignores unknown keys.
type (
	nativeSnapshot struct {
		BootID       string              `json:"boot_id,omitempty"`
		UTCOffset    *int                `json:"utc_offset_s,omitempty"`
		MachineID    string              `json:"machine_id,omitempty"`
		StateFolder  string              `json:"state_folder,omitempty"`
		Processes    []nativeProcess     `json:"processes"`
		Environments []nativeEnvironment `json:"envs"`
		Devices      []nativeDevice      `json:"devices"`
		Warnings     []string            `json:"warnings,omitempty"`
		Guard        *Guard              `json:"guard,omitempty"`
		Service      *bool               `json:"service,omitempty"`
	}
	nativeProcess struct {
		wireProcess
		Start          StartTime `json:"start,omitempty"`
		UID            *UID      `json:"uid,omitempty"`
		Name           string    `json:"name,omitempty"`
		Command        string    `json:"command,omitempty"`
		Username       Username  `json:"user,omitempty"`
		UserUnknown    bool      `json:"user_unknown,omitempty"`
		Protected      string    `json:"protected,omitempty"`
		Container      string    `json:"container,omitempty"`
		Inherited      EnvID     `json:"inherited_eid,omitempty"`
		EnvUnknown     bool      `json:"env_unknown,omitempty"`
		EnvOverwritten bool      `json:"env_overwritten,omitempty"`
		Instances      []GPUUUID `json:"mig,omitempty"`

		ContainerInfo *ContainerInfo `json:"container_info,omitempty"`
	}
	nativeEnvironment struct {
		wireEnvironment
		OwnerMismatch bool          `json:"owner_mismatch,omitempty"`
		Since         StartTime     `json:"since,omitempty"`
		Former        []FormerIndex `json:"former,omitempty"`
	}
	nativeDevice struct {
		wireDevice
		// TotalMemory replaces that of wireDevice: null for a device that shares the machine's.
		TotalMemory  *string          `json:"total_memory"`
		Failed       bool             `json:"failed,omitempty"`
		Problem      string           `json:"problem,omitempty"`
		Unidentified bool             `json:"unidentified,omitempty"`
		UUID         GPUUUID          `json:"uuid,omitempty"`
		Name         string           `json:"name,omitempty"`
		UsedMemory   *string          `json:"used_memory,omitempty"`
		Utilization  *int             `json:"utilization,omitempty"`
		Temperature  *int             `json:"temperature,omitempty"`
		Power        *float64         `json:"power,omitempty"`
		Instances    []nativeInstance `json:"mig,omitempty"`
		NotListed    bool             `json:"processes_unknown,omitempty"`
		// Parts are the MIG instances that attachments are about.
		Parts []nativePart `json:"attached_mig,omitempty"`
		// Since are those of the attachments.
		Since map[EnvID]StartTime `json:"attached_since,omitempty"`
	}
	nativePart struct {
		EID       EnvID     `json:"eid"`
		Instances []GPUUUID `json:"mig"`
	}
	nativeInstance struct {
		UUID    GPUUUID `json:"uuid"`
		Profile string  `json:"profile,omitempty"`
		Total   Memory  `json:"total_memory,omitzero"`
		Pool    string  `json:"pool,omitempty"`
	}
)

func nativeSince(attachments []Attachment) map[EnvID]StartTime {
	if len(attachments) == 0 {
		return nil
	}
	since := make(map[EnvID]StartTime, len(attachments))
	for i := range attachments {
		if a := &attachments[i]; a.Since != 0 {
			since[a.EID] = a.Since
		}
	}
	return since
}

// maxWarnings is how many warnings of a host are kept. More don't make its snapshot
// invalid, since its users can cause warnings.
const maxWarnings = 256

// maxOffset is more than any zone's offset from UTC, in seconds.
const maxOffset = 24 * 60 * 60

// EncodeNative writes a whole snapshot as one line of JSON.
func EncodeNative(s *Snapshot) ([]byte, error) {
	n := nativeSnapshot{
		BootID: s.BootID, UTCOffset: s.UTCOffset, MachineID: s.MachineID, StateFolder: s.StateFolder, Warnings: s.Warnings,
		Processes: nativeProcesses(s.Processes), Environments: []nativeEnvironment{}, Devices: []nativeDevice{},
		Guard: s.Guard, Service: s.Service,
	}
	for i, w := range environmentsToWire(s.Environments) {
		n.Environments = append(n.Environments, nativeEnvironment{w, s.Environments[i].OwnerMismatch, s.Environments[i].Since, s.Environments[i].Former})
	}
	for i, w := range devicesToWire(s.Devices) {
		d := &s.Devices[i]
		total := &w.TotalMemory
		if d.Unified {
			total = nil
		}
		n.Devices = append(n.Devices, nativeDevice{w, total, d.Failed, d.Problem, d.Unidentified, d.UUID, d.Name, orNull(d.UsedMemory.String()), d.Utilization, d.Temperature, d.Power, nativeInstances(d.Instances), d.ProcessesUnknown, nativeParts(d.Attachments), nativeSince(d.Attachments)})
	}
	return Marshal(n)
}

// Marshal is json.Marshal, but does not escape HTML: that would make a text of a user up
// to six times as long.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func nativeProcesses(processes []Process) []nativeProcess {
	out := make([]nativeProcess, 0, len(processes))
	for i := range processes {
		p := &processes[i]
		out = append(out, nativeProcess{
			wireProcess: processToWire(p), Start: p.Start, UID: p.UID, Name: p.Name, Command: p.Command,
			Username: p.Username, UserUnknown: p.UserUnknown, Protected: p.Protected, Container: p.Container, ContainerInfo: p.ContainerInfo,
			Inherited: p.Inherited, EnvUnknown: p.EnvUnknown, EnvOverwritten: p.EnvOverwritten, Instances: p.Instances,
		})
	}
	return out
}

// EncodeNativeProcesses writes processes as EncodeNative does, for reports.
func EncodeNativeProcesses(processes []Process) ([]byte, error) {
	return Marshal(nativeProcesses(processes))
}

// DecodeNativeProcesses reads what EncodeNativeProcesses writes.
func DecodeNativeProcesses(data []byte) ([]Process, error) {
	var list []nativeProcess
	if err := unmarshalBounded(data, &list); err != nil {
		return nil, err
	}
	return fromWire(list, "process", maxProcesses, nativeProcess.process, idOfProcess)
}

// DecodeNative reads what EncodeNative writes. It checks every field; its error wraps
// ErrInvalid.
func DecodeNative(data []byte) (*Snapshot, error) {
	var n nativeSnapshot
	if err := unmarshalBounded(data, &n); err != nil {
		return nil, err
	}
	if n.Processes == nil || n.Environments == nil || n.Devices == nil {
		return nil, fmt.Errorf("%w: a part of the snapshot is missing", ErrInvalid)
	}
	if o := orZero(n.UTCOffset); o < -maxOffset || o > maxOffset {
		return nil, fmt.Errorf("%w: a clock %d seconds from UTC", ErrInvalid, o)
	}
	processes, badProcesses := fromWire(n.Processes, "process", maxProcesses, nativeProcess.process, idOfProcess)
	environments, badEnvironments := boundedTogether(fromWire(n.Environments, "environment", maxEnvironments, nativeEnvironment.environment, idOfEnvironment))
	devices, badDevices := fromWire(n.Devices, "device", maxDevices, nativeDevice.device, idOfDevice)
	err := cmp.Or(
		CheckText("boot_id", n.BootID), CheckText("machine_id", n.MachineID), CheckText("state_folder", n.StateFolder),
		badProcesses, badEnvironments, badDevices,
	)
	if err != nil {
		return nil, err
	}
	return &Snapshot{
		BootID: n.BootID, UTCOffset: n.UTCOffset, MachineID: n.MachineID, StateFolder: n.StateFolder,
		Processes: processes, Environments: environments, Devices: devices, Warnings: keptWarnings(n.Warnings),
		Guard: n.Guard.known(), Service: n.Service,
	}, nil
}

// keptWarnings limits the number and length of warnings. They are not escaped yet.
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

func (n nativeProcess) process() (Process, error) {
	p, err := n.wireProcess.process()
	p.Start, p.UID, p.Name, p.Command, p.Username, p.UserUnknown = n.Start, n.UID, n.Name, n.Command, n.Username, n.UserUnknown
	p.Protected, p.Container, p.Inherited, p.EnvUnknown, p.EnvOverwritten = n.Protected, n.Container, n.Inherited, n.EnvUnknown, n.EnvOverwritten
	p.Instances, p.ContainerInfo = n.Instances, n.ContainerInfo
	return p, cmp.Or(
		err, CheckInstances(p.Instances), p.ContainerInfo.check(), CheckText("name", p.Name), CheckText("command", p.Command), CheckText("user", string(p.Username)),
		CheckText("protected", p.Protected), CheckText("container", p.Container), CheckText("inherited_eid", string(p.Inherited)),
	)
}

func (n nativeEnvironment) environment() (Environment, error) {
	e, err := n.wireEnvironment.environment()
	e.OwnerMismatch, e.Since, e.Former = n.OwnerMismatch, n.Since, n.Former
	if len(e.Former) > maxDevices {
		err = cmp.Or(err, tooMany(len(e.Former), "former indices", maxDevices))
	}
	return e, err
}

func (n nativeDevice) device() (Device, error) {
	n.wireDevice.TotalMemory = orZero(n.TotalMemory)
	d, err := n.wireDevice.device()
	d.Unified, d.Failed, d.Problem, d.Unidentified = n.TotalMemory == nil, n.Failed, n.Problem, n.Unidentified
	used, bad := memoryFromWire("used_memory", orZero(n.UsedMemory))
	d.UUID, d.Name, d.UsedMemory = n.UUID, n.Name, used
	d.Utilization, d.Temperature, d.Power = n.Utilization, n.Temperature, n.Power
	instances, badInstances := instancesFromWire(n.Instances)
	d.Instances, d.ProcessesUnknown = instances, n.NotListed
	for i := range d.Attachments {
		d.Attachments[i].Since = n.Since[d.Attachments[i].EID]
	}
	return d, cmp.Or(
		err, badInstances, markParts(&d, n.Parts), CheckText("uuid", string(d.UUID)), CheckText("name", d.Name), CheckText("problem", d.Problem), bad,
		checkUtilization(orZero(d.Utilization)), CheckTemperature(orZero(d.Temperature)), CheckPower(orZero(d.Power)),
	)
}

func checkUtilization(percent int) error {
	if percent < 0 || percent > 100 {
		return fmt.Errorf("%w: a utilization of %d per cent", ErrInvalid, percent)
	}
	return nil
}

// CheckTemperature returns an error, which wraps ErrInvalid, unless a device can have
// this temperature in degrees Celsius.
func CheckTemperature(celsius int) error {
	if celsius < -273 || celsius > 1000 {
		return fmt.Errorf("%w: a temperature of %d degrees Celsius", ErrInvalid, celsius)
	}
	return nil
}

// CheckPower returns an error, which wraps ErrInvalid, unless a device can draw this
// power in watts.
func CheckPower(watts float64) error {
	if !(watts >= 0 && watts <= 1e6) { // refuses NaN, too
		return fmt.Errorf("%w: a power of %g watts", ErrInvalid, watts)
	}
	return nil
}
