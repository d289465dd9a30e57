package order

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// nativeObject is an order in the format of our own hosts and controllers. It
// carries start times, and processes with unknown memory.
type nativeObject struct {
	Terminate json.RawMessage            `json:"terminate"`
	Outside   []snapshot.PID             `json:"outside"` // of Terminate; null if an older controller wrote it
	Detach    map[string]json.RawMessage `json:"detach"`  // as in the 1.4.3 format
	// GPUs are the UUIDs of the devices; absent if an older controller wrote it.
	GPUs map[snapshot.DeviceIndex]snapshot.GPUUUID `json:"gpus,omitempty"`
	// Unused are the environments of Detach, by device, that were judged not to use it.
	Unused map[snapshot.DeviceIndex][]snapshot.EnvID `json:"unused,omitempty"`
}

// EncodeNative writes what is to be done, with all that is known of the processes. The Options of the order, its ID and
// its reasons are sent next to it.
func EncodeNative(o Order) ([]byte, error) {
	processes, outside := make([]snapshot.Process, len(o.Terminate)), []snapshot.PID{}
	for i := range o.Terminate {
		processes[i] = o.Terminate[i].Process
		if o.Terminate[i].Outside() {
			outside = append(outside, processes[i].PID)
		}
	}
	terminate, err := snapshot.EncodeNativeProcesses(processes)
	if err != nil {
		return nil, fmt.Errorf("encode order: %w", err)
	}
	detach, err := encodeDetachments(o.Detach)
	if err != nil {
		return nil, err
	}
	unused := map[snapshot.DeviceIndex][]snapshot.EnvID{}
	for i := range o.Detach {
		if d := &o.Detach[i]; d.Unused {
			unused[d.Device] = append(unused[d.Device], d.Environment.EID)
		}
	}
	return json.Marshal(nativeObject{Terminate: terminate, Outside: outside, Detach: detach, GPUs: o.GPUs,
		Unused: unused})
}

// DecodeNative reads what EncodeNative wrote.
func DecodeNative(data []byte) (Order, error) {
	var n nativeObject
	if err := checkSize(data); err != nil {
		return Order{}, err
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return Order{}, fmt.Errorf("%w: %w", snapshot.ErrInvalid, err)
	}
	processes, err := snapshot.DecodeNativeProcesses(n.Terminate)
	if err != nil {
		return Order{}, fmt.Errorf("terminate: %w", err)
	}
	o := Order{Terminate: terminationsOf(processes), GPUs: n.GPUs}
	outside := make(map[snapshot.PID]bool, len(n.Outside))
	for _, pid := range n.Outside {
		outside[pid] = true
	}
	for i := range o.Terminate {
		p := &o.Terminate[i].Process
		if p.EnvUnknown && !p.EnvOverwritten && !p.Unreadable.IsByUser() {
			return Order{}, fmt.Errorf("%w: process %d was judged without its environment", snapshot.ErrInvalid, p.PID)
		}
		if n.Outside != nil {
			is := outside[p.PID]
			o.Terminate[i].InNoEnvironment = &is
		}
	}
	o.Detach, err = decodeDetachments(n.Detach)
	for i := range o.Detach {
		o.Detach[i].Unused = slices.Contains(n.Unused[o.Detach[i].Device], o.Detach[i].Environment.EID)
	}
	o.Sort()
	return o, err
}

// Part is something of each item that is sent next to an order.
type Part int

// The parts.
const (
	Reasons  Part = iota // the findings as people read them
	Findings             // their ids
	Judged               // the lines of the snapshot that were judged
)

// each calls a function with a part of each item, in the order of their outcomes.
func (o *Order) each(p Part, do func(*[]string)) {
	for i := range o.Detach {
		d := &o.Detach[i]
		do(p.among(&d.Why, &d.Because, &d.Judged))
	}
	for i := range o.Terminate {
		t := &o.Terminate[i]
		do(p.among(&t.Why, &t.Because, &t.Judged))
	}
}

func (p Part) among(reasons, findings, judged *[]string) *[]string {
	switch p {
	case Reasons:
		return reasons
	case Findings:
		return findings
	}
	return judged
}

// Of is the part of each item of an order; nil if no item has it.
func (p Part) Of(o Order) [][]string {
	lists, some := make([][]string, 0, len(o.Detach)+len(o.Terminate)), 0
	o.each(p, func(list *[]string) { lists, some = append(lists, *list), some+len(*list) })
	if some == 0 {
		return nil
	}
	return lists
}

// Set takes what Of gave; nothing when it is of another order.
func (p Part) Set(o Order, lists [][]string) {
	if len(lists) == len(o.Detach)+len(o.Terminate) {
		o.each(p, func(list *[]string) { *list, lists = lists[0], lists[1:] })
	}
}
