package order

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
)

// MaxBytes is the maximum size of an order: far more than a host of 1024 devices needs.
const MaxBytes = 16 << 20

const maxDevices = 1024 // one more than the highest device index that the codec of package snapshot reads

// order143 has the keys of 1.4.3, which accepts exactly these: nothing may be added.
type order143 struct {
	Terminate json.RawMessage            `json:"terminate"` // {"processes": […]}; in our own format the list alone
	Detach    map[string]json.RawMessage `json:"detach"`    // {"<device index>": {"envs": […]}}
}

type nativeOrder struct {
	order143
	Outside    []snapshot.PID                          `json:"outside"`           // of Terminate
	Counted    []snapshot.PID                          `json:"counted,omitempty"` // likewise
	Unattached map[snapshot.PID][]snapshot.DeviceIndex `json:"unattached,omitempty"`
	// GPUs are the UUIDs of the devices. Older controllers send none.
	GPUs map[snapshot.DeviceIndex]snapshot.GPUUUID `json:"gpus,omitempty"`
	// Unused are the environments of Detach, by device, that were judged not to use it.
	Unused map[snapshot.DeviceIndex][]snapshot.EnvID `json:"unused,omitempty"`
}

// Encode143 writes an order as `genv usage execute` of 1.4.3 reads it: one line that has no newline, start times,
// grace, SIGKILL, names or finding IDs. Unknown environments or memory are an error (see Process.Expressible).
func Encode143(o Order) ([]byte, error) {
	if p := snapshot.Find(o.processes(), func(p *snapshot.Process) bool { return !p.Expressible() }); p != nil {
		return nil, fmt.Errorf("encode order: process %d has an unknown environment or memory, which the 1.4.3 format "+
			"cannot express", p.PID)
	}
	d, err := o.document143(snapshot.EncodeProcesses)
	if err != nil {
		return nil, err
	}
	return snapshot.Marshal(d)
}

// EncodeNative writes the items of an order with all that is known of the processes, but without Options, ID and
// reasons.
func EncodeNative(o Order) ([]byte, error) {
	shared, err := o.document143(snapshot.EncodeNativeProcesses)
	if err != nil {
		return nil, err
	}
	d := nativeOrder{
		order143: shared, Outside: []snapshot.PID{}, GPUs: o.GPUs,
		Unattached: make(map[snapshot.PID][]snapshot.DeviceIndex),
		Unused:     make(map[snapshot.DeviceIndex][]snapshot.EnvID),
	}
	for i := range o.Terminate {
		t := &o.Terminate[i]
		if t.Outside() {
			d.Outside = append(d.Outside, t.Process.PID)
		}
		if t.Counted {
			d.Counted = append(d.Counted, t.Process.PID)
		}
		if len(t.Unattached) > 0 {
			d.Unattached[t.Process.PID] = t.Unattached
		}
	}
	for i := range o.Detach {
		if x := &o.Detach[i]; x.Unused {
			d.Unused[x.Device] = append(d.Unused[x.Device], x.Environment.EID)
		}
	}
	return json.Marshal(d)
}

func (o *Order) processes() []snapshot.Process {
	processes := make([]snapshot.Process, len(o.Terminate))
	for i := range o.Terminate {
		processes[i] = o.Terminate[i].Process
	}
	return processes
}

func (o *Order) document143(encode func([]snapshot.Process) ([]byte, error)) (d order143, err error) {
	if d.Terminate, err = encode(o.processes()); err != nil {
		return d, fmt.Errorf("encode order: %w", err)
	}
	byDevice := map[string][]snapshot.Environment{}
	for i := range o.Detach {
		key := o.Detach[i].Device.String()
		byDevice[key] = append(byDevice[key], o.Detach[i].Environment)
	}
	d.Detach = make(map[string]json.RawMessage, len(byDevice))
	for key, envs := range byDevice {
		if d.Detach[key], err = snapshot.EncodeEnvironments(envs); err != nil {
			return d, fmt.Errorf("encode order: device %s: %w", key, err)
		}
	}
	return d, nil
}

// Decode143 reads an order of a 1.4.3 controller or Encode143, and sorts the items. An error wraps snapshot.ErrInvalid
// and names the place; then nothing of the order may be carried out.
func Decode143(data []byte) (Order, error) {
	var d order143
	if err := checkSize(data); err != nil {
		return Order{}, err
	}
	if err := snapshot.UnmarshalExact(data, &d); err != nil {
		return Order{}, err
	}
	return d.order(snapshot.DecodeProcesses)
}

// DecodeNative reads an order of EncodeNative, with the errors of Decode143.
func DecodeNative(data []byte) (Order, error) {
	var d nativeOrder
	if err := checkSize(data); err != nil {
		return Order{}, err
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return Order{}, fmt.Errorf("%w: %w", snapshot.ErrInvalid, err)
	}
	o, err := d.order(snapshot.DecodeNativeProcesses)
	if err != nil {
		return Order{}, err
	}
	o.GPUs = d.GPUs
	outside, counted := setOf(d.Outside), setOf(d.Counted)
	for i := range o.Terminate {
		t := &o.Terminate[i]
		t.Counted = counted[t.Process.PID]
		if !t.MayBeJudged() {
			return Order{}, fmt.Errorf("%w: process %d was judged without its environment", snapshot.ErrInvalid,
				t.Process.PID)
		}
		t.Unattached = d.Unattached[t.Process.PID]
		if d.Outside != nil {
			t.InNoEnvironment = new(outside[t.Process.PID])
		}
	}
	for i := range o.Detach {
		o.Detach[i].Unused = slices.Contains(d.Unused[o.Detach[i].Device], o.Detach[i].Environment.EID)
	}
	return o, nil
}

func setOf(pids []snapshot.PID) map[snapshot.PID]bool {
	set := make(map[snapshot.PID]bool, len(pids))
	for _, pid := range pids {
		set[pid] = true
	}
	return set
}

func checkSize(data []byte) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("%w: an order of %d bytes is longer than the %d that are read",
			snapshot.ErrInvalid, len(data), MaxBytes)
	}
	return nil
}

func (d *order143) order(decode func([]byte) ([]snapshot.Process, error)) (o Order, err error) {
	processes, err := decode(d.Terminate)
	if err != nil {
		return Order{}, fmt.Errorf("terminate: %w", err)
	}
	for i := range processes {
		o.Terminate = append(o.Terminate, Termination{Process: processes[i]})
	}
	for key, raw := range d.Detach {
		index, err := strconv.ParseUint(key, 10, 16)
		if err != nil || index >= maxDevices || strconv.FormatUint(index, 10) != key {
			return Order{}, fmt.Errorf("detach: %w: %q is not a device index", snapshot.ErrInvalid, key)
		}
		envs, err := snapshot.DecodeEnvironments(raw)
		if err != nil {
			return Order{}, fmt.Errorf("detach: device %s: %w", key, err)
		}
		for i := range envs {
			o.Detach = append(o.Detach, Detachment{Device: snapshot.DeviceIndex(index), Environment: envs[i]})
		}
	}
	o.Sort()
	return o, nil
}

// AllReasons are the Reasons of all items, in the order of outcomes. They are sent beside an order.
type AllReasons struct {
	Because  [][]string `json:"because,omitempty"` // the findings as people read them
	Findings [][]string `json:"findings,omitempty"`
	Judged   [][]string `json:"judged,omitempty"`
}

// Reasons returns those of all items.
func (o *Order) Reasons() (all AllReasons) {
	for _, r := range o.reasons() {
		all.Because, all.Findings = append(all.Because, r.Why), append(all.Findings, r.Because)
		all.Judged = append(all.Judged, r.Judged)
	}
	for _, lists := range []*[][]string{&all.Because, &all.Findings, &all.Judged} {
		if !slices.ContainsFunc(*lists, func(list []string) bool { return len(list) > 0 }) {
			*lists = nil // no item has one
		}
	}
	return all
}

// SetReasons sets the reasons, unless they are of another order.
func (o *Order) SetReasons(all AllReasons) {
	items := o.reasons()
	for i, r := range items {
		set := func(list *[]string, of [][]string) {
			if len(of) == len(items) {
				*list = of[i]
			}
		}
		set(&r.Why, all.Because)
		set(&r.Because, all.Findings)
		set(&r.Judged, all.Judged)
	}
}

func (o *Order) reasons() (items []*Reasons) {
	for i := range o.Detach {
		items = append(items, &o.Detach[i].Reasons)
	}
	for i := range o.Terminate {
		items = append(items, &o.Terminate[i].Reasons)
	}
	return items
}
