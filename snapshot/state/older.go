package state

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// converted is the content of a state file of an older version of genv in the format of 1.4.3, which converts it too,
// and by which it is checked then; ok is false for what no older version wrote. Up to 0.9.0 environments are an object,
// by their id; names, settings, processes and kernels may be missing. Up to 0.8.0 devices are an object, by their
// index, and what 1.4.3 calls attachments is an object, by the id of the environment.
func converted(file File, data []byte) (content []byte, ok bool) {
	var document map[string]json.RawMessage
	var older map[string]map[string]any
	name := map[File]string{Envs: "envs", Devices: "devices"}[file]
	if json.Unmarshal(data, &document) != nil || json.Unmarshal(document[name], &older) != nil || older == nil {
		return nil, false
	}
	list := []map[string]any{}
	for _, key := range inOrder(older) {
		entry, ok := convertedEnvironment(key, older[key]), true
		if file == Devices {
			entry, ok = convertedDevice(key, older[key])
		}
		if !ok {
			return nil, false
		}
		list = append(list, entry)
	}
	content, err := json.Marshal(map[string][]map[string]any{name: list})
	return content, err == nil
}

// inOrder are the keys of an object as numbers are sorted: Go doesn't keep their order.
func inOrder[V any](of map[string]V) []string {
	return slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
}

func convertedEnvironment(key string, older map[string]any) map[string]any {
	e := fieldsOf(older, "eid", "uid", "creation", "username", "config", "pids", "kernel_ids")
	if config, isObject := e["config"].(map[string]any); isObject || e["config"] == nil {
		e["config"] = fieldsOf(config, "name", "gpu_memory", "gpus")
	}
	e["eid"] = or(e["eid"], key)
	e["pids"], e["kernel_ids"] = or(e["pids"], []any{}), or(e["kernel_ids"], []any{})
	return e
}

func convertedDevice(key string, older map[string]any) (device map[string]any, ok bool) {
	index, err := strconv.Atoi(key)
	all, ok := older["eids"].(map[string]any)
	if err != nil || strconv.Itoa(index) != key || !ok && older["eids"] != nil {
		return nil, false
	}
	attachments := []map[string]any{}
	for _, eid := range inOrder(all) {
		a, isObject := all[eid].(map[string]any)
		if !isObject {
			return nil, false
		}
		attachments = append(attachments, map[string]any{
			"eid": or(a["eid"], eid), "gpu_memory": a["gpu_memory"], "time": a["attached"],
		})
	}
	return map[string]any{"index": index, "total_memory": older["total_memory"], "attachments": attachments}, true
}

func or(value, none any) any {
	if value == nil || value == "" {
		return none
	}
	return value
}

func fieldsOf(o map[string]any, names ...string) map[string]any {
	fields := make(map[string]any, len(names))
	for _, name := range names {
		fields[name] = o[name]
	}
	return fields
}
