package gpus

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// units of the fields that have one.
var units = map[string]string{
	"memory.total": "MiB", "memory.used": "MiB", "memory.free": "MiB", "used_gpu_memory": "MiB", "used_memory": "MiB",
	"utilization.gpu": "%", "utilization.memory": "%", "power.draw": "W",
}

const timestamp = "2006/01/02 15:04:05.000"

// gpuRow has a device's value for each field of --query-gpu.
func gpuRow(v view, d Device) map[string]string {
	load, persistence := v.Load(d), "Enabled"
	if d.NoPersistence {
		persistence = "Disabled"
	}
	row := map[string]string{
		"persistence_mode": persistence, "mig.mode.current": d.MIGMode(),
		"memory.total": fmt.Sprint(d.TotalMiB), "memory.used": fmt.Sprint(v.Used(d)), "memory.free": fmt.Sprint(v.Free(d)),
		"utilization.gpu": strconv.Itoa(load), "utilization.memory": strconv.Itoa(load / 2),
		"temperature.gpu": strconv.Itoa(v.Celsius(d)), "power.draw": fmt.Sprintf("%d.12", v.Watt(d)),
	}
	if len(d.MIG) > 0 {
		row["utilization.gpu"], row["utilization.memory"] = "[N/A]", "[N/A]"
	}
	if d.Broken {
		for name := range row {
			row[name] = "[Unknown Error]"
		}
	}
	maps.Copy(row, map[string]string{
		"timestamp": v.Now.Format(timestamp), "driver_version": v.Version, "count": strconv.Itoa(len(v.Devices)),
		"name": d.Name, "gpu_name": d.Name, "uuid": d.UUID, "gpu_uuid": d.UUID, "index": strconv.Itoa(d.Index),
		"pci.bus_id": d.BusID(), "gpu_bus_id": d.BusID(),
	})
	return row
}

// appRow has an app's value for each field of --query-compute-apps.
func appRow(v view, a App) map[string]string {
	name, busID, used := "[N/A]", "[N/A]", amount(a.UsedMiB, "", "[N/A]")
	if d, ok := v.device(a); ok {
		name, busID = d.Name, d.BusID()
	}
	return map[string]string{
		"timestamp": v.Now.Format(timestamp), "gpu_name": name, "gpu_bus_id": busID, "gpu_uuid": v.uuidOf(a),
		"pid": strconv.Itoa(a.PID), "process_name": a.Name, "name": a.Name, "used_gpu_memory": used, "used_memory": used,
	}
}

// csv prints the fields of all rows as nvidia-smi does: ", " between cells, no
// quotes, and the unit in the header even where nounits takes it off the cells.
func csv(fields []string, rows []map[string]string, format []string) string {
	var b strings.Builder
	if !slices.Contains(format, "noheader") {
		b.WriteString(line(fields, heading))
	}
	for _, row := range rows {
		b.WriteString(line(fields, func(name string) string {
			if units[name] == "" || slices.Contains(format, "nounits") || strings.HasPrefix(row[name], "[") {
				return row[name]
			}
			return row[name] + " " + units[name]
		}))
	}
	return b.String()
}

func line(fields []string, cell func(name string) string) string {
	cells := make([]string, len(fields))
	for i, name := range fields {
		cells[i] = cell(name)
	}
	return strings.Join(cells, ", ") + "\n"
}

// heading is the field with its unit. nvidia-smi heads used_memory by its other
// name.
func heading(name string) string {
	if name == "used_memory" {
		name = "used_gpu_memory"
	}
	if units[name] == "" {
		return name
	}
	return name + " [" + units[name] + "]"
}
