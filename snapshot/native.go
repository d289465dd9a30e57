package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// The native types are the format in which our own hosts and controllers speak
// (genv usage serve): all that a Snapshot holds, unknowns as unknown. Keys may
// be added to it: a decoder passes over those that it does not know.
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
	}
	nativeProcess struct {
		PID            PID         `json:"pid"`
		Start          StartTime   `json:"start,omitempty"`
		UID            *UID        `json:"uid,omitempty"`
		Name           string      `json:"name,omitempty"`
		Command        string      `json:"command,omitempty"`
		Username       Username    `json:"user,omitempty"`
		UserUnknown    bool        `json:"user_unknown,omitempty"`
		Protected      string      `json:"protected,omitempty"`
		Container      string      `json:"container,omitempty"`
		EID            EnvID       `json:"eid,omitempty"`
		Inherited      EnvID       `json:"inherited_eid,omitempty"`
		EnvUnknown     bool        `json:"env_unknown,omitempty"`
		EnvOverwritten bool        `json:"env_overwritten,omitempty"`
		Usage          []wireUsage `json:"used_gpu_memory"`
	}
	nativeEnvironment struct {
		wireEnvironment
		OwnerMismatch bool `json:"owner_mismatch,omitempty"`
	}
	nativeDevice struct {
		wireDevice
		UUID        GPUUUID `json:"uuid,omitempty"`
		Name        string  `json:"name,omitempty"`
		UsedMemory  *string `json:"used_memory,omitempty"`
		Utilization *int    `json:"utilization,omitempty"`
	}
)

// EncodeNative writes all that a snapshot holds, as one line of JSON.
func EncodeNative(s *Snapshot) ([]byte, error) {
	n := nativeSnapshot{
		BootID: s.BootID, UTCOffset: s.UTCOffset, MachineID: s.MachineID, StateFolder: s.StateFolder, Warnings: s.Warnings,
		Processes: nativeProcesses(s.Processes), Environments: []nativeEnvironment{}, Devices: []nativeDevice{},
	}
	for i, e := range environmentsToWire(s.Environments).Environments {
		n.Environments = append(n.Environments, nativeEnvironment{e, s.Environments[i].OwnerMismatch})
	}
	for i, w := range devicesToWire(s.Devices).Devices {
		d := &s.Devices[i]
		n.Devices = append(n.Devices, nativeDevice{w, d.UUID, d.Name, orNull(d.UsedMemory.String()), d.Utilization})
	}
	return Marshal(n)
}

// Marshal is json.Marshal, but leaves HTML as it is: escaped, a text of a user would
// be six times as long.
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
			PID: p.PID, Start: p.Start, UID: p.UID, Name: p.Name, Command: p.Command, Username: p.Username, UserUnknown: p.UserUnknown, Protected: p.Protected, Container: p.Container,
			EID: p.EID, Inherited: p.Inherited, EnvUnknown: p.EnvUnknown, EnvOverwritten: p.EnvOverwritten, Usage: usageToWire(p.Usage),
		})
	}
	return out
}

// EncodeNativeProcesses writes processes as EncodeNative does, for reports.
func EncodeNativeProcesses(processes []Process) ([]byte, error) {
	return Marshal(nativeProcesses(processes))
}

// DecodeNativeProcesses reads what EncodeNativeProcesses wrote.
func DecodeNativeProcesses(data []byte) ([]Process, error) {
	if err := checkAmount(data); err != nil {
		return nil, err
	}
	var list []nativeProcess
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return processesFromNative(list)
}

// DecodeNative reads what EncodeNative wrote. Every field is checked; an error
// wraps ErrInvalid.
func DecodeNative(data []byte) (*Snapshot, error) {
	if err := checkAmount(data); err != nil {
		return nil, err
	}
	var n nativeSnapshot
	if err := json.Unmarshal(data, &n); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if n.Processes == nil || n.Environments == nil || n.Devices == nil {
		return nil, fmt.Errorf("%w: a part of the snapshot is missing", ErrInvalid)
	}
	if len(n.Environments) > maxEnvironments || len(n.Devices) > maxDevices {
		return nil, fmt.Errorf("%w: more of it than is read", ErrInvalid)
	}
	if o := n.UTCOffset; o != nil && (*o < -maxOffset || *o > maxOffset) {
		return nil, fmt.Errorf("%w: a clock %d seconds from UTC", ErrInvalid, *o)
	}
	s := &Snapshot{BootID: n.BootID, UTCOffset: n.UTCOffset, MachineID: n.MachineID, StateFolder: n.StateFolder}
	err := checkTexts(n.BootID, n.MachineID, n.StateFolder)
	for _, w := range n.Warnings[:min(len(n.Warnings), maxWarnings)] {
		s.Warnings = append(s.Warnings, text.Cut(w, maxTextLength))
	}
	if more := len(n.Warnings) - maxWarnings; more > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%d more warnings, which are not shown", more))
	}
	if err != nil {
		return nil, err
	}
	if s.Processes, err = processesFromNative(n.Processes); err != nil {
		return nil, err
	}
	if s.Environments, err = decodeEach(n.Environments, "environment", nativeEnvironment.environment, environmentID); err != nil {
		return nil, err
	}
	s.Devices, err = decodeEach(n.Devices, "device", nativeDevice.device, deviceID)
	return s, err
}

// maxWarnings is in how many lines a host may warn; the others are dropped. It
// is no reason to know nothing of the host: its users can make it warn.
const maxWarnings = 256

// maxOffset is further from UTC than any zone is, in seconds.
const maxOffset = 24 * 60 * 60
