package state

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

type object = map[string]any

// converted is the content of a state file of an older version of genv in the format of 1.4.3, which converts it too,
// and by which it is checked then; ok is false for what no older version wrote. Up to 0.9.0 environments are an object,
// by their id; names, settings, processes and kernels may be missing. Up to 0.8.0 devices are an object, by their
// index, and what 1.4.3 calls attachments is an object, by the id of the environment.
func converted(file File, data []byte) (content []byte, ok bool) {
	var older map[string]map[string]object
	name := map[File]string{Envs: "envs", Devices: "devices"}[file]
	if json.Unmarshal(data, &older) != nil || older[name] == nil {
		return nil, false
	}
	list := []object{}
	for _, key := range inOrder(older[name]) {
		entry, ok := convertedEnvironment(key, older[name][key]), true
		if file == Devices {
			entry, ok = convertedDevice(key, older[name][key])
		}
		if !ok {
			return nil, false
		}
		list = append(list, entry)
	}
	content, err := json.Marshal(map[string][]object{name: list})
	return content, err == nil
}

// inOrder are the keys of an object as numbers are sorted: Go doesn't keep their order.
func inOrder[V any](of map[string]V) []string {
	return slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
}

func convertedEnvironment(key string, older object) object {
	e := fieldsOf(older, "eid", "uid", "creation", "username", "config", "pids", "kernel_ids")
	if config, isObject := e["config"].(object); isObject || e["config"] == nil {
		e["config"] = fieldsOf(config, "name", "gpu_memory", "gpus")
	}
	e["eid"] = or(e["eid"], key)
	e["pids"], e["kernel_ids"] = or(e["pids"], []any{}), or(e["kernel_ids"], []any{})
	return e
}

func convertedDevice(key string, older object) (device object, ok bool) {
	index, err := strconv.Atoi(key)
	all, ok := older["eids"].(object)
	if err != nil || strconv.Itoa(index) != key || !ok && older["eids"] != nil {
		return nil, false
	}
	attachments := []object{}
	for _, eid := range inOrder(all) {
		a, isObject := all[eid].(object)
		if !isObject {
			return nil, false
		}
		attachments = append(attachments, object{
			"eid": or(a["eid"], eid), "gpu_memory": a["gpu_memory"], "time": a["attached"],
		})
	}
	return object{"index": index, "total_memory": older["total_memory"], "attachments": attachments}, true
}

// or is a value, or another one for none.
func or(value, none any) any {
	if value == nil || value == "" {
		return none
	}
	return value
}

// fieldsOf are some fields of an object; null for those that are missing.
func fieldsOf(o object, names ...string) object {
	fields := make(object, len(names))
	for _, name := range names {
		fields[name] = o[name]
	}
	return fields
}
