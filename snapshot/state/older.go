package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
)

// The state files of older versions of genv, which 1.4.3 converts too. Up to 0.9.0 environments are an object, by their
// id; names, settings, processes and kernels may be missing. Up to 0.8.0 devices are an object, by their index, and
// what 1.4.3 calls attachments is an object, by the id of the environment.
type (
	olderEnvironments struct {
		Environments map[string]olderEnvironment `json:"envs"`
	}
	olderEnvironment struct {
		EID      string          `json:"eid"`
		UID      json.RawMessage `json:"uid"`
		Creation json.RawMessage `json:"creation"`
		Username json.RawMessage `json:"username"`
		Config   struct {
			Name      json.RawMessage `json:"name"`
			GPUMemory json.RawMessage `json:"gpu_memory"`
			GPUs      json.RawMessage `json:"gpus"`
		} `json:"config"`
		PIDs      json.RawMessage `json:"pids"`
		KernelIDs json.RawMessage `json:"kernel_ids"`
	}
	olderDevices struct {
		Devices map[string]olderDevice `json:"devices"`
	}
	olderDevice struct {
		TotalMemory json.RawMessage            `json:"total_memory"`
		Attachments map[string]olderAttachment `json:"eids"`
	}
	olderAttachment struct {
		EID       string          `json:"eid"`
		GPUMemory json.RawMessage `json:"gpu_memory"`
		Attached  json.RawMessage `json:"attached"`
	}
)

// converted is the content of an older state file in the format of 1.4.3, by which it is
// checked then; ok is false for what no older version wrote.
func converted(file File, data []byte) (content []byte, ok bool) {
	var document any
	if file == Envs {
		var older olderEnvironments
		if json.Unmarshal(data, &older) != nil || older.Environments == nil {
			return nil, false
		}
		document = map[string]any{"envs": older.convert()}
	} else {
		var older olderDevices
		if json.Unmarshal(data, &older) != nil || older.Devices == nil {
			return nil, false
		}
		devices, err := older.convert()
		if err != nil {
			return nil, false
		}
		document = map[string]any{"devices": devices}
	}
	content, err := json.Marshal(document)
	return content, err == nil
}

// convert sorts the environments by their id: Go doesn't keep the order of an object.
func (o *olderEnvironments) convert() []any {
	out := make([]any, 0, len(o.Environments))
	for _, key := range slices.Sorted(maps.Keys(o.Environments)) {
		e := o.Environments[key]
		out = append(out, map[string]any{
			"eid": cmp.Or(e.EID, key), "uid": orNull(e.UID), "creation": orNull(e.Creation),
			"username": orNull(e.Username),
			"config": map[string]any{
				"name": orNull(e.Config.Name), "gpu_memory": orNull(e.Config.GPUMemory), "gpus": orNull(e.Config.GPUs),
			},
			"pids": orEmpty(e.PIDs), "kernel_ids": orEmpty(e.KernelIDs),
		})
	}
	return out
}

func (o *olderDevices) convert() ([]any, error) {
	indices := make(map[int]olderDevice, len(o.Devices))
	for key, device := range o.Devices {
		index, err := strconv.Atoi(key)
		if err != nil || strconv.Itoa(index) != key {
			return nil, fmt.Errorf("%w: the GPU index %q is not a number", snapshot.ErrInvalid, key)
		}
		indices[index] = device
	}
	out := make([]any, 0, len(indices))
	for _, index := range slices.Sorted(maps.Keys(indices)) {
		attachments := []any{}
		for _, key := range slices.Sorted(maps.Keys(indices[index].Attachments)) {
			a := indices[index].Attachments[key]
			attachments = append(attachments, map[string]any{
				"eid": cmp.Or(a.EID, key), "gpu_memory": orNull(a.GPUMemory), "time": orNull(a.Attached),
			})
		}
		out = append(out, map[string]any{
			"index": index, "total_memory": orNull(indices[index].TotalMemory), "attachments": attachments,
		})
	}
	return out, nil
}

// orNull is a value, or null for none.
func orNull(value json.RawMessage) json.RawMessage {
	if value == nil {
		return json.RawMessage("null")
	}
	return value
}

// orEmpty is a list; an empty one for none.
func orEmpty(list json.RawMessage) json.RawMessage {
	if bytes.Equal(orNull(list), orNull(nil)) {
		return json.RawMessage("[]")
	}
	return list
}
