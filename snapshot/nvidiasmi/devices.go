package nvidiasmi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// GPU is a GPU in a row or remark, without attachments. It is Unidentified if nvidia-smi contradicts itself about it.
// Only Divide sets Instances.
type GPU struct {
	snapshot.Device
	Address     string // on the PCI bus, if the driver names a lost GPU by it
	Persistence *bool  // persistence mode, only by Modes; nil if unknown
}

func doubtful(d snapshot.Device, problem string) GPU {
	d.Problem, d.Unidentified, d.ProcessesUnknown = problem, true, true
	return GPU{Device: d}
}

// Listing has the GPUs of a machine by index, with those that nvidia-smi only reports as lost.
type Listing struct {
	GPUs     []GPU
	Warnings []string
	Time     Time
}

// Indices maps the known UUIDs to indices.
func (l *Listing) Indices() map[snapshot.GPUUUID]snapshot.DeviceIndex {
	indices := make(map[snapshot.GPUUUID]snapshot.DeviceIndex, len(l.GPUs))
	for i := range l.GPUs {
		if g := &l.GPUs[i]; g.UUID != "" {
			indices[g.UUID] = g.Index
		}
	}
	return indices
}

// DevicesArgs returns the arguments for ParseDevices with the same modes.
func DevicesArgs(modes ...string) []string {
	columns := "index,uuid,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw,name,driver_version"
	columns = strings.Join(append([]string{columns}, modes...), ",")
	return []string{"--query-gpu=" + columns, "--format=csv,noheader,nounits"}
}

// modes has columns that not all drivers know.
var modes = []string{"display_active", "compute_mode", "mig.mode.current", "power.limit"}

const exitInvalid = 2 // the exit code for a column that the driver doesn't know

// DeviceQuery remembers which modes the driver refuses. The zero value is ready to use.
type DeviceQuery struct {
	known atomic.Pointer[[]string]
	asked atomic.Uint32
}

// Ask asks by a function that runs nvidia-smi with DevicesArgs and parses its output.
func (q *DeviceQuery) Ask(ask func(modes ...string) (Listing, error)) (Listing, error) {
	if q.asked.Add(1)%64 == 0 { // the driver may be newer by now
		q.known.Store(&modes)
	}
	for q.known.CompareAndSwap(nil, &modes); ; {
		asked := *q.known.Load()
		listing, err := ask(asked...)
		refused := new(ExitError)
		if len(asked) == 0 || !errors.As(err, &refused) || refused.ExitCode != exitInvalid {
			return listing, err
		}
		known := slices.DeleteFunc(slices.Clone(asked), func(mode string) bool {
			return strings.Contains(refused.Text, mode)
		})
		if len(known) == len(asked) {
			known = nil
		}
		q.known.Store(&known)
	}
}

// Devices lists at least one device: a machine without devices is ErrNoDevices.
func (q *Querier) Devices(ctx context.Context, oldest time.Duration) (Listing, error) {
	return q.modes.Ask(func(modes ...string) (Listing, error) { return q.list(ctx, oldest, modes...) })
}

// Modes lists the devices with their persistence modes by a new call.
func (q *Querier) Modes(ctx context.Context) (Listing, error) {
	return q.list(ctx, 0, "persistence_mode")
}

func (q *Querier) list(ctx context.Context, oldest time.Duration, modes ...string) (Listing, error) {
	parse := func(out RunResult) (Listing, error) { return ParseDevices(out, modes...) }
	listing, at, err := query(ctx, q, DevicesArgs(modes...), oldest, parse)
	listing.Time = at
	return listing, err
}

// ParseDevices parses the answer for DevicesArgs. An error is an *ExitError or ErrNoDevices.
func ParseDevices(out RunResult, modes ...string) (Listing, error) {
	a := sortLines(out)
	var rows []GPU
	for _, line := range a.lines {
		g, isRow := parseGPU(line, modes)
		if isRow {
			rows = append(rows, g)
			isRow = g.Failed || g.Unified || g.TotalMemory.Known() || g.Problem != ""
		}
		if !isRow { // or its memory is "[Insufficient Permissions]"
			a.warn(line)
		}
	}
	if slices.ContainsFunc(rows, func(g GPU) bool { return g.Index != noIndex }) {
		return Listing{GPUs: place(rows, a.lost), Warnings: a.warnings}, nil
	}
	if len(a.lines)+len(a.lost)+out.ExitCode == 0 {
		return Listing{}, ErrNoDevices
	}
	return Listing{}, a.failure()
}

// cutModes reads the modes, and returns the fields before them.
func (g *GPU) cutModes(fields string, modes []string) string {
	var r gpuRow
	for _, mode := range slices.Backward(modes) {
		at := strings.LastIndexByte(fields, ',')
		if at < 0 { // the row is cut
			return fields
		}
		field := fields[at+1:]
		fields = fields[:at]
		if mode == "power.limit" {
			g.PowerLimit = r.watts("power limit", field)
			continue
		}
		switch value := r.value(mode, field, false); mode {
		case "display_active":
			g.Display = enabled(value)
		case "persistence_mode":
			g.Persistence = enabled(value)
		case "compute_mode":
			if value == "Prohibited" {
				g.Unusable = "its compute mode is Prohibited"
			}
		case "mig.mode.current":
			g.MIGMode = value == "Enabled"
		}
	}
	g.Failed, g.Problem = g.Failed || r.failed, cmp.Or(g.Problem, r.problem())
	return fields
}

func enabled(value string) *bool {
	on := strings.EqualFold(value, "Enabled")
	return valueIf(&on, on || strings.EqualFold(value, "Disabled"))
}

// isVersion accepts a driver's version, such as 550.163.01, or "".
func isVersion(s string) bool { return len(s) < 32 && strings.Trim(s, ".0123456789") == "" }

const maxIndex = 1023 // the limit of the 1.4.3 codec, and more than any machine has

// parseGPU parses a line for DevicesArgs. The name may contain commas. A row begins with a number or a text in
// brackets; if cut, it only proves that the GPU is there.
func parseGPU(line string, modes []string) (g GPU, isRow bool) {
	const columns = 8 // with what follows the power as one
	fields := strings.SplitN(line, ",", columns)
	index, err := strconv.ParseUint(strings.TrimSpace(fields[0]), 10, 63)
	isNumber, isCut := err == nil && index <= maxIndex, len(fields) < columns
	switch {
	case len(fields) < 2 || !isNumber && (isCut || !strings.HasPrefix(fields[0], "[")):
		return GPU{}, false
	case isCut:
		return doubtful(snapshot.Device{Index: snapshot.DeviceIndex(index)}, "unexpected row: "+shown(line)), true
	}
	var r gpuRow
	g.Index, g.UUID, g.TotalMemory = noIndex, r.uuid(fields[1]), r.memory("total memory", fields[2])
	g.UsedMemory = r.memory("used memory", fields[3])
	g.Utilization, g.Temperature, g.Power = r.percent(fields[4]), r.celsius(fields[5]), r.watts("power", fields[6])
	if isNumber {
		g.Index = snapshot.DeviceIndex(index)
	} else {
		r.value("index", fields[0], true)
	}
	g.Failed, g.Problem = r.failed, r.problem()
	total := strings.Trim(strings.TrimSpace(fields[2]), "[]")
	g.Unified = !g.Failed && (total == "N/A" || total == "Not Supported")
	name := g.cutModes(fields[7], modes)
	if at := strings.LastIndexByte(name, ','); at >= 0 && isVersion(known(name[at+1:])) {
		name, g.Driver = name[:at], known(name[at+1:])
	}
	if name = known(name); snapshot.CheckText("name", name) == nil {
		g.Name = name
	}
	return g, true
}

// place gives each GPU an index and marks doubtful ones. A lost GPU gets the missing index.
func place(rows, lost []GPU) []GPU {
	for _, l := range lost {
		i := slices.IndexFunc(rows, func(g GPU) bool {
			return g.Index == l.Index && l.Index != noIndex || g.Failed && g.Address == "" && g.UUID == "" &&
				(l.Index == noIndex || g.Index == noIndex)
		})
		if i < 0 {
			rows = append(rows, l)
			continue
		}
		rows[i].Failed, rows[i].Problem, rows[i].Address = true, l.Problem, l.Address
		rows[i].Index = max(rows[i].Index, l.Index)
	}
	rows = withoutDuplicates(rows)
	taken := make(map[snapshot.DeviceIndex]bool, len(rows))
	last := snapshot.DeviceIndex(noIndex)
	for i := range rows {
		taken[rows[i].Index] = true
		last = max(last, rows[i].Index)
	}
	next := snapshot.DeviceIndex(0)
	for i := range rows {
		if rows[i].Index != noIndex {
			continue
		}
		for taken[next] {
			next++
		}
		rows[i].Index, taken[next] = next, true
	}
	for index := range last {
		if !taken[index] && len(rows) < 2*len(taken) { // a gap of a few
			const problem = "nvidia-smi lists later GPUs, and not this one"
			rows = append(rows, GPU{Device: snapshot.Device{Index: index, Failed: true, Problem: problem}})
		}
	}
	slices.SortFunc(rows, func(x, y GPU) int { return cmp.Compare(x.Index, y.Index) })
	return rows
}

// withoutDuplicates keeps one GPU of each index, and marks those with duplicate indices or UUIDs: nothing is attributed
// to them.
func withoutDuplicates(rows []GPU) []GPU {
	uuids, indices := make(map[snapshot.GPUUUID]int), make(map[snapshot.DeviceIndex]int)
	for i := range rows {
		uuids[rows[i].UUID]++
		indices[rows[i].Index]++
	}
	kept := rows[:0:0]
	for _, g := range rows {
		switch {
		case g.Index != noIndex && indices[g.Index] > 1:
			if slices.ContainsFunc(kept, func(k GPU) bool { return k.Index == g.Index }) {
				continue
			}
			g = doubtful(snapshot.Device{Index: g.Index, Name: g.Name},
				fmt.Sprintf("nvidia-smi lists GPU %d twice", g.Index))
		case g.UUID != "" && uuids[g.UUID] > 1:
			uuid := g.UUID
			g.UUID = ""
			g = doubtful(g.Device, fmt.Sprintf("nvidia-smi lists the UUID %s twice", uuid))
		}
		kept = append(kept, g)
	}
	return kept
}

// ListArgs returns the arguments for ParseList.
func ListArgs() []string { return []string{"-L"} }

// List lists the devices with their indices, UUIDs and MIG instances.
func (q *Querier) List(ctx context.Context, oldest time.Duration) ([]snapshot.Device, error) {
	list, _, err := query(ctx, q, ListArgs(), oldest, ParseList)
	return list, err
}

// ParseList parses the answer of `nvidia-smi -L`. It ignores remarks, and lines under a device without a MIG instance,
// whose UUID may be unknown. An error is an *ExitError: no device is listed.
func ParseList(out RunResult) ([]snapshot.Device, error) {
	a := sortLines(out)
	var devices []snapshot.Device
	under := false // the last line was a device's, or below one
	for _, line := range a.lines {
		uuid, named := listedUUID(line)
		if line[0] != ' ' && line[0] != '\t' {
			index, ok := listedIndex(line)
			if under = ok && named; under {
				devices = append(devices, snapshot.Device{Index: index, UUID: uuid})
			}
			continue
		}
		if mig, isInstance := strings.CutPrefix(strings.TrimLeft(line, " \t"), "MIG "); under && isInstance {
			last := &devices[len(devices)-1]
			last.Instances = append(last.Instances, snapshot.Instance{UUID: uuid, Profile: listedProfile(mig)})
		}
	}
	if len(devices) == 0 {
		return nil, a.failure()
	}
	return devices, nil
}

// listedIndex parses N in "GPU N: …".
func listedIndex(line string) (snapshot.DeviceIndex, bool) {
	rest, isGPU := strings.CutPrefix(line, "GPU ")
	number, _, ends := strings.Cut(rest, ":")
	index, err := strconv.ParseUint(number, 10, 31)
	return snapshot.DeviceIndex(index), isGPU && ends && err == nil && index <= maxIndex
}

// listedProfile parses P in "P  Device  0: …", such as "1c.3g.40gb+me"; empty if invalid.
func listedProfile(rest string) string {
	const maxProfile = 40 // bytes
	profile, _, _ := strings.Cut(rest, " ")
	if len(profile) > maxProfile || !text.IsMadeOf(profile, ".+-") {
		return ""
	}
	return profile
}

// listedUUID parses X in "… (UUID: X)" at the end of a line.
func listedUUID(line string) (snapshot.GPUUUID, bool) {
	const mark = "(UUID: "
	at := strings.LastIndex(line, mark)
	if at < 0 {
		return "", false
	}
	uuid, ends := strings.CutSuffix(line[at+len(mark):], ")")
	if !ends || !isUUID(uuid) {
		return "", false
	}
	return snapshot.GPUUUID(uuid), true
}
