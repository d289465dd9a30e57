package nvidiasmi

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// GPU is one line of the output for DevicesArgs.
type GPU struct {
	Index       snapshot.DeviceIndex
	UUID        snapshot.GPUUUID // empty if the driver does not report it
	Name        string
	TotalMemory snapshot.Memory // unknown for a GPU that shares the machine's memory
	UsedMemory  snapshot.Memory
	Utilization *int     // per cent; nil if the driver does not report it, as with MIG
	Temperature *int     // degrees Celsius; nil likewise
	Power       *float64 // watts; nil likewise
	// Instances are its MIG instances, which only List tells.
	Instances []snapshot.Instance
}

// Device is the device in the model, without attachments.
func (g *GPU) Device() snapshot.Device {
	return snapshot.Device{
		Index: g.Index, UUID: g.UUID, Name: g.Name, TotalMemory: g.TotalMemory,
		UsedMemory: g.UsedMemory, Utilization: g.Utilization, Temperature: g.Temperature, Power: g.Power,
		Instances: g.Instances,
	}
}

// DevicesArgs are the arguments for the output that ParseDevices reads.
func DevicesArgs() []string {
	return []string{"--query-gpu=index,uuid,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw,name", "--format=csv,noheader,nounits"}
}

// Devices lists the devices in the order of their indices. There is at least one: a
// machine without devices is ErrNoDevices.
func (q *Querier) Devices(ctx context.Context) ([]GPU, error) {
	devices, err := query(ctx, q, DevicesArgs(), ParseDevices)
	if err == nil && len(devices) == 0 {
		err = ErrNoDevices
	}
	return devices, err
}

// ParseDevices parses the output for DevicesArgs. After its error, ErrGarbled, no part of
// the output may be used.
func ParseDevices(data []byte) ([]GPU, error) {
	var devices []GPU
	seen := map[snapshot.DeviceIndex]bool{}
	for line := range lines(data) {
		d, err := parseDevice(line)
		if err != nil {
			return nil, err
		}
		if seen[d.Index] {
			return nil, fmt.Errorf("%w: GPU %d is listed twice", ErrGarbled, d.Index)
		}
		seen[d.Index] = true
		devices = append(devices, d)
	}
	return devices, nil
}

// maxIndex is the limit of the 1.4.3 codec, and more than any machine has.
const maxIndex = 1023

// parseDevice parses one line. The name is the last field, so that it may contain commas.
func parseDevice(line string) (GPU, error) {
	fields, err := split(line, 8)
	if err != nil {
		return GPU{}, err
	}
	p := parser{line: line}
	d := GPU{
		Index:       snapshot.DeviceIndex(p.number(fields[0], maxIndex)),
		UUID:        p.uuid(fields[1]),
		TotalMemory: p.memory(fields[2]),
		UsedMemory:  p.memory(fields[3]),
		Utilization: p.percent(fields[4]),
		Temperature: p.celsius(fields[5]),
		Power:       p.watts(fields[6]),
		Name:        strings.TrimSpace(known(fields[7])),
	}
	if err := snapshot.CheckText("name", d.Name); err != nil {
		p.fail()
	}
	return d, p.err
}
