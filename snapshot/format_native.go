package snapshot

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// The native format is for our own hosts and controllers (genv usage serve): it
// contains everything in a Snapshot, and marks what is unknown. Keys may be added to it:
// a decoder ignores unknown keys.
type (
	nativeSnapshot struct {
		BootID       string              `json:"boot_id,omitempty"`
		UTCOffset    *int                `json:"utc_offset_s,omitempty"`
		StateFolder  string              `json:"state_folder,omitempty"`
		Processes    []nativeProcess     `json:"processes"`
		Environments []nativeEnvironment `json:"envs"`
		Devices      []nativeDevice      `json:"devices"`
		Warnings     []string            `json:"warnings,omitempty"`
		Guard        *Guard              `json:"guard,omitempty"`
		Service      *bool               `json:"service,omitempty"`
		More         []More              `json:"more,omitempty"`
	}
	nativeProcess struct {
		wireProcess
		Start          StartTime   `json:"start,omitempty"`
		UID            *UID        `json:"uid,omitempty"`
		Name           string      `json:"name,omitempty"`
		Command        string      `json:"command,omitempty"`
		PrivateCommand string      `json:"private_command,omitempty"`
		Username       Username    `json:"user,omitempty"`
		UserUnknown    bool        `json:"user_unknown,omitempty"`
		Protected      string      `json:"protected,omitempty"`
		Container      string      `json:"container,omitempty"`
		Inherited      EnvID       `json:"inherited_eid,omitempty"`
		EnvUnknown     bool        `json:"env_unknown,omitempty"`
		EnvOverwritten bool        `json:"env_overwritten,omitempty"`
		Unreadable     *Unreadable `json:"unreadable,omitempty"`
		NodeMissing    bool        `json:"unproved,omitempty"`
		NodeHolder     PID         `json:"unproved_holder,omitempty"`
		Instances      []GPUUUID   `json:"mig,omitempty"`
		// Types are those of the uses, as far as they are known.
		Types map[DeviceIndex]ProcessType `json:"types,omitempty"`

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
		Driver       string           `json:"driver,omitempty"`
		Display      bool             `json:"display,omitempty"`
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
		Total   string  `json:"total_memory,omitempty"`
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
		BootID: s.BootID, UTCOffset: s.UTCOffset, StateFolder: s.StateFolder, Warnings: s.Warnings,
		Processes: nativeProcesses(s.Processes), Environments: []nativeEnvironment{}, Devices: []nativeDevice{},
		Guard: s.Guard, Service: s.Service, More: s.More,
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
		n.Devices = append(n.Devices, nativeDevice{w, total, d.Failed, d.Problem, d.Unidentified, d.UUID, d.Name, d.Driver, d.Display, orNull(d.UsedMemory.String()), d.Utilization, d.Temperature, d.Power, nativeInstances(d.Instances), d.ProcessesUnknown, nativeParts(d.Attachments), nativeSince(d.Attachments)})
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
			wireProcess: processToWire(p), Start: p.Start, UID: p.UID, Name: p.Name, Command: p.Command, PrivateCommand: p.PrivateCommand,
			Username: p.Username, UserUnknown: p.UserUnknown, Protected: p.Protected, Container: p.Container, ContainerInfo: p.ContainerInfo,
			Inherited: p.Inherited, EnvUnknown: p.EnvUnknown, EnvOverwritten: p.EnvOverwritten, Unreadable: p.Unreadable,
			NodeMissing: p.NodeMissing, NodeHolder: p.NodeHolder, Instances: p.Instances, Types: nativeTypes(p.Usage),
		})
	}
	return out
}

func nativeTypes(usage []DeviceUsage) (types map[DeviceIndex]ProcessType) {
	for _, u := range usage {
		if u.Type == "" {
			continue
		}
		if types == nil {
			types = make(map[DeviceIndex]ProcessType, len(usage))
		}
		types[u.Index] = u.Type
	}
	return types
}

// EncodeNativeProcesses writes processes as EncodeNative does, for orders.
func EncodeNativeProcesses(processes []Process) ([]byte, error) {
	return Marshal(nativeProcesses(processes))
}

// DecodeNativeProcesses reads what EncodeNativeProcesses writes, if all of it can be read.
func DecodeNativeProcesses(data []byte) ([]Process, error) {
	var list []nativeProcess
	var r reader
	if err := r.unmarshal(data, &list); err != nil {
		return nil, err
	}
	processes, err := fromWire(&r, list, "process", maxProcesses, nativeProcess.process, idOfProcess)
	return strictly(processes, r.warnings(), err)
}

// DecodeNative reads what EncodeNative writes. What can't be read of an item is left out, and
// named in the Warnings. The error wraps ErrInvalid, and says that the snapshot as a whole can't
// be read.
func DecodeNative(data []byte) (*Snapshot, error) {
	var n nativeSnapshot
	var r reader
	if err := r.unmarshal(data, &n); err != nil {
		return nil, err
	}
	if n.Processes == nil || n.Environments == nil || n.Devices == nil {
		return nil, fmt.Errorf("%w: a part of the snapshot is missing", ErrInvalid)
	}
	if o := orZero(n.UTCOffset); o < -maxOffset || o > maxOffset {
		r.leaveOut("utc_offset_s", fmt.Errorf("it is %d seconds", o))
		n.UTCOffset = nil
	}
	cleanText(&r, "boot_id", &n.BootID)
	cleanText(&r, "state_folder", &n.StateFolder)
	processes, badProcesses := fromWire(&r, n.Processes, "process", maxProcesses, nativeProcess.process, idOfProcess)
	environments, badEnvironments := boundedTogether(fromWire(&r, n.Environments, "environment", maxEnvironments, nativeEnvironment.environment, idOfEnvironment))
	devices, badDevices := fromWire(&r, n.Devices, "device", maxDevices, nativeDevice.device, idOfDevice)
	if err := cmp.Or(badProcesses, badEnvironments, badDevices); err != nil {
		return nil, err
	}
	return &Snapshot{
		BootID: n.BootID, UTCOffset: n.UTCOffset, StateFolder: n.StateFolder,
		Processes: processes, Environments: environments, Devices: devices, Warnings: append(r.warnings(), keptWarnings(n.Warnings)...),
		Guard: n.Guard.known(), Service: n.Service, More: n.More,
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

func (n nativeProcess) process(r *reader) (Process, error) {
	p, err := n.wireProcess.process(r)
	p.Start, p.UID, p.Name, p.Command, p.Username, p.UserUnknown = n.Start, n.UID, n.Name, n.Command, n.Username, n.UserUnknown
	p.PrivateCommand = n.PrivateCommand
	p.Protected, p.Container, p.EnvUnknown, p.EnvOverwritten, p.NodeMissing = n.Protected, n.Container, p.EnvUnknown || n.EnvUnknown, n.EnvOverwritten, n.NodeMissing
	p.Inherited, p.ContainerInfo, p.NodeHolder = r.id(n.Inherited), n.ContainerInfo, n.NodeHolder
	if n.Unreadable != nil {
		p.Unreadable = &Unreadable{Why: text.Cut(n.Unreadable.Why, maxTextLength), ByUser: n.Unreadable.ByUser}
	}
	for i := range p.Usage {
		switch u := &p.Usage[i]; n.Types[u.Index] {
		case "", TypeCompute, TypeGraphics, TypeComputeGraphics, TypePending:
			u.Type = n.Types[u.Index]
		default: // of a newer genv
			u.Type = TypeCompute
		}
	}
	p.Instances = slices.DeleteFunc(n.Instances, func(uuid GPUUUID) bool { return r.leavesOut("an instance", CheckInstance(uuid)) })
	if len(p.Instances) > maxInstances {
		err = cmp.Or(err, tooMany(len(p.Instances), "MIG instances", maxInstances))
	}
	cleanText(r, "name", &p.Name)
	cleanText(r, "command", &p.Command)
	cleanText(r, "private_command", &p.PrivateCommand)
	cleanText(r, "user", &p.Username)
	cleanText(r, "protected", &p.Protected)
	if r.leavesOut("container", CheckText("it", p.Container)) {
		p.Container = UnnamedContainer
	}
	if r.leavesOut("container_info", p.ContainerInfo.check()) {
		p.ContainerInfo = &ContainerInfo{Unknown: true}
	}
	return p, err
}

func (n nativeEnvironment) environment(r *reader) (Environment, error) {
	e, err := n.wireEnvironment.environment(r)
	e.OwnerMismatch, e.Since, e.Former = n.OwnerMismatch, n.Since, n.Former
	if len(e.Former) > maxDevices {
		err = cmp.Or(err, tooMany(len(e.Former), "former indices", maxDevices))
	}
	return e, err
}

func (n nativeDevice) device(r *reader) (Device, error) {
	n.wireDevice.TotalMemory = orZero(n.TotalMemory)
	d, err := n.wireDevice.device(r)
	d.Unified, d.Failed, d.Problem, d.Unidentified = n.TotalMemory == nil, n.Failed, n.Problem, n.Unidentified
	d.UUID, d.Name, d.Driver, d.Display, d.UsedMemory = n.UUID, n.Name, n.Driver, n.Display, r.memory("used_memory", orZero(n.UsedMemory))
	d.ProcessesUnknown = n.NotListed
	d.Utilization = measured(r, "utilization", n.Utilization, checkUtilization)
	d.Temperature = measured(r, "temperature", n.Temperature, CheckTemperature)
	d.Power = measured(r, "power", n.Power, CheckPower)
	cleanText(r, "name", &d.Name)
	cleanText(r, "driver", &d.Driver)
	cleanText(r, "problem", &d.Problem)
	if r.leavesOut("uuid", CheckText("it", string(d.UUID))) {
		d.UUID, d.Unidentified = "", true
	}
	d.Instances = r.instances(n.Instances)
	for i := range d.Attachments {
		d.Attachments[i].Since = n.Since[d.Attachments[i].EID]
	}
	r.markParts(&d, n.Parts)
	return d, err
}

// measured is a value that a device can have; nil for another one.
func measured[T any](r *reader, name string, value *T, check func(T) error) *T {
	if value == nil || r.leavesOut(name, check(*value)) {
		return nil
	}
	return value
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
