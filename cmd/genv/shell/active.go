package shell

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Active is an environment as the variables of its shells describe it.
type Active struct {
	EID     snapshot.EnvID
	Config  snapshot.EnvConfig
	Devices []snapshot.DeviceIndex // the attached ones
	// UUIDs are those of Devices, on a guarded host: there, a user's programs see only
	// these devices, and count them from 0. nil for the indices.
	// An entry may be several MIG instances of the device, with commas.
	UUIDs []snapshot.GPUUUID
	// AMD says that the devices are AMD's, which ROCm selects by variables of its own.
	AMD bool
	// Parts are the devices of which it has MIG instances.
	Parts []change.Part
}

// environmentVariables are those that an environment sets in its shells. GENV_SHELL
// marks an active shell, and shells that were started from it.
var environmentVariables = []string{
	"GENV_SHELL", "GENV_ENVIRONMENT_ID", "GENV_ENVIRONMENT_NAME", "GENV_GPU_MEMORY", "GENV_GPUS",
	"CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES",
}

// amdVariables are those that an environment sets besides on a host with AMD GPUs.
var amdVariables = []string{"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}

// variables are those that an environment sets.
func variables(amd bool) []string {
	if amd {
		return slices.Concat(environmentVariables, amdVariables)
	}
	return environmentVariables
}

// Activate is the change that activates an environment in a shell.
func Activate(a Active, noPrompt bool) Change {
	change := Update(a)
	change.Shims = ShimsAdd
	change.Prompt = PromptAdd
	if noPrompt {
		change.Prompt = PromptStay
	}
	return change
}

// Update is the change after an attach, a detach or a config in an active
// shell.
func Update(a Active) Change {
	values := map[string]string{
		"GENV_SHELL":            "1",
		"GENV_ENVIRONMENT_ID":   string(a.EID),
		"GENV_ENVIRONMENT_NAME": a.Config.Name,
		"GENV_GPU_MEMORY":       a.Config.GPUMemory.String(),
		"GENV_GPUS":             count(a.Config.GPUs),
		"CUDA_DEVICE_ORDER":     "PCI_BUS_ID",
		"CUDA_VISIBLE_DEVICES":  a.VisibleDevices(),
		"HIP_VISIBLE_DEVICES":   a.VisibleDevices(),
		"ROCR_VISIBLE_DEVICES":  indicesOrNone(a.Devices),
	}
	change := Change{Prompt: PromptReplace, Prefix: Prompt(cmp.Or(a.Config.Name, string(a.EID)))}
	for _, variable := range variables(a.AMD) {
		if value := values[variable]; value != "" {
			change.Set = append(change.Set, Variable{variable, value})
		} else {
			change.Unset = append(change.Unset, variable)
		}
	}
	return change
}

// Deactivate is the change that gives a shell back what it had. amd says that the host has
// AMD GPUs.
func Deactivate(amd bool) Change {
	return Change{Restore: variables(amd), Shims: ShimsRemove, Prompt: PromptRemove}
}

// VisibleDevices is the value of CUDA_VISIBLE_DEVICES: indices, or UUIDs if they are given.
// Without any it is "-1", which hides all: CUDA takes the devices before the
// first invalid index (CUDA C++ Programming Guide, "CUDA Environment
// Variables"), whereas some programs take an empty value for a missing one.
//
// With AMD GPUs ROCR_VISIBLE_DEVICES selects devices first, and HIP, which reads
// HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES alike, numbers those from 0.
func (a *Active) VisibleDevices() string {
	switch {
	case a.AMD:
		relative := make([]snapshot.DeviceIndex, len(a.Devices))
		for i := range relative {
			relative[i] = snapshot.DeviceIndex(i)
		}
		return indicesOrNone(relative)
	case len(a.Devices) == 0 || a.UUIDs == nil:
		return indicesOrNone(a.Devices)
	}
	uuids := make([]string, len(a.UUIDs))
	for i, uuid := range a.UUIDs {
		uuids[i] = string(uuid)
	}
	return strings.Join(uuids, ",")
}

func indicesOrNone(devices []snapshot.DeviceIndex) string {
	if len(devices) == 0 {
		return "-1"
	}
	return text.JoinIndices(devices)
}

func count(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
