package gpus

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// column is a field that can be queried: its names, the first of which heads
// the column, and its unit.
type column struct {
	names []string
	unit  string
}

// value is a cell; text without a unit stays as it is ("[N/A]").
type value struct {
	text string
	bare bool // never followed by the unit
}

var gpuColumns = []column{
	{names: []string{"timestamp"}},
	{names: []string{"driver_version"}},
	{names: []string{"count"}},
	{names: []string{"name", "gpu_name"}},
	{names: []string{"uuid", "gpu_uuid"}},
	{names: []string{"index"}},
	{names: []string{"pci.bus_id", "gpu_bus_id"}},
	{names: []string{"persistence_mode"}},
	{names: []string{"mig.mode.current"}},
	{names: []string{"memory.total"}, unit: "MiB"},
	{names: []string{"memory.used"}, unit: "MiB"},
	{names: []string{"memory.free"}, unit: "MiB"},
	{names: []string{"utilization.gpu"}, unit: "%"},
	{names: []string{"utilization.memory"}, unit: "%"},
	{names: []string{"temperature.gpu"}},
	{names: []string{"power.draw"}, unit: "W"},
}

var appColumns = []column{
	{names: []string{"timestamp"}},
	{names: []string{"gpu_name"}},
	{names: []string{"gpu_bus_id"}},
	{names: []string{"gpu_uuid"}},
	{names: []string{"pid"}},
	{names: []string{"process_name", "name"}},
	{names: []string{"used_gpu_memory", "used_memory"}, unit: "MiB"},
}

// gpuRows has a row for each device, in the order of gpuColumns.
func gpuRows(h Host, now time.Time) [][]value {
	var rows [][]value
	for _, d := range h.Devices {
		load := 0
		if h.busy(d) {
			load = 97
		}
		used := h.used(d)
		row := texts(stamp(now), h.Driver, strconv.Itoa(len(h.Devices)), d.Name, d.UUID, strconv.Itoa(d.Index),
			busID(d.Index), "Enabled", migMode(d), number(d.TotalMiB), number(used), number(d.TotalMiB-used),
			strconv.Itoa(load), strconv.Itoa(load/2), strconv.Itoa(31+load/3), fmt.Sprintf("%d.%02d", 70+5*load, 12))
		if d.Broken {
			for i := 7; i < len(row); i++ {
				row[i] = value{text: "[Unknown Error]", bare: true}
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// appRows has a row for each app, in the order of appColumns.
func appRows(h Host, now time.Time) [][]value {
	var rows [][]value
	for _, a := range h.Apps {
		row := texts(stamp(now), "[N/A]", "[N/A]", h.uuidOf(a), strconv.Itoa(a.PID), a.Name)
		if d, ok := h.device(a); ok {
			row[1].text, row[2].text = d.Name, busID(d.Index)
		}
		used := value{text: "[N/A]", bare: true}
		if a.UsedMiB != nil {
			used = value{text: number(*a.UsedMiB)}
		}
		rows = append(rows, append(row, used))
	}
	return rows
}

// showCSV prints the wanted columns as nvidia-smi does: ", " between cells, no
// quotes, and the unit in the header even where nounits takes it off the cells.
func showCSV(w io.Writer, o options, columns []column, wanted []string, rows [][]value) error {
	at := make([]int, len(wanted))
	head := make([]string, len(wanted))
	for i, name := range wanted {
		at[i] = slices.IndexFunc(columns, func(c column) bool { return slices.Contains(c.names, name) })
		head[i] = heading(columns[at[i]], name)
	}
	var b strings.Builder
	if !o.noHeader {
		fmt.Fprintln(&b, strings.Join(head, ", "))
	}
	for _, row := range rows {
		cells := make([]string, len(at))
		for i, c := range at {
			cells[i] = cell(row[c], columns[c].unit, o.noUnits)
		}
		fmt.Fprintln(&b, strings.Join(cells, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// heading is the name that was asked for with the unit, but for used_memory,
// which nvidia-smi heads by its other name.
func heading(c column, asked string) string {
	if asked == "used_memory" {
		asked = c.names[0]
	}
	if c.unit == "" {
		return asked
	}
	return asked + " [" + c.unit + "]"
}

func cell(v value, unit string, noUnits bool) string {
	if unit == "" || noUnits || v.bare {
		return v.text
	}
	return v.text + " " + unit
}

func texts(cells ...string) []value {
	row := make([]value, len(cells))
	for i, c := range cells {
		row[i].text = c
	}
	return row
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func stamp(now time.Time) string { return now.Format("2006/01/02 15:04:05.000") }

func migMode(d Device) string {
	if len(d.MIG) > 0 {
		return "Enabled"
	}
	return "Disabled"
}
