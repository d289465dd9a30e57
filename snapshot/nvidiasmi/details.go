package nvidiasmi

import (
	"bytes"
	"context"
	"encoding/xml"
	"math"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// Details is what only `nvidia-smi -q -x` says: which processes draw, on which GPUs a screen is
// active, and which MIG instances processes use.
type Details struct {
	GPUs []GPUDetails
	Time Time
}

// GPUDetails is a GPU in Details.
type GPUDetails struct {
	UUID          snapshot.GPUUUID
	DisplayActive bool
	Instances     []InstanceDetails // in the order of `nvidia-smi -L`
	Processes     []ProcessDetails
}

// InstanceID identifies a MIG instance of a GPU: a compute instance of a GPU instance, of which
// all compute instances share the memory. "N/A" for none.
type InstanceID struct {
	GI string `xml:"gpu_instance_id"`
	CI string `xml:"compute_instance_id"`
}

// InstanceDetails is a MIG instance. Its memory is less than the name of its profile says.
type InstanceDetails struct {
	InstanceID
	Memory snapshot.Memory
}

// ProcessDetails is a process on a GPU. Type is "C", "G" or "C+G".
type ProcessDetails struct {
	InstanceID
	PID    snapshot.PID
	Type   string
	Memory snapshot.Memory
}

// DetailsArgs are the arguments for the output that ParseDetails reads.
func DetailsArgs() []string { return []string{"-q", "-x"} }

// Details asks for the details of all GPUs, which takes longer than the other questions.
func (q *Querier) Details(ctx context.Context, age Age) (Details, error) {
	details, at, err := query(ctx, q.details, DetailsArgs(), age, ParseDetails)
	details.Time = at
	return details, err
}

// ParseDetails parses the answer for DetailsArgs. An error is an *ExitError: an answer that isn't
// complete is none.
func ParseDetails(out RunResult) (Details, error) {
	var log struct {
		GPUs []struct {
			UUID      string   `xml:"uuid"`
			Display   []string `xml:"display_active"` // one, unless the name of a process has more
			Instances []struct {
				InstanceID
				Total string `xml:"fb_memory_usage>total"`
			} `xml:"mig_devices>mig_device"`
			Processes []struct {
				InstanceID
				PID  string `xml:"pid"`
				Type string `xml:"type"`
				Used string `xml:"used_memory"`
			} `xml:"processes>process_info"`
		} `xml:"gpu"`
	}
	rest, _, complete := Split(out)
	if !complete || xml.Unmarshal(withoutNames(rest), &log) != nil {
		return Details{}, sortLines(out).failure()
	}
	var d Details
	for _, g := range log.GPUs {
		details := GPUDetails{UUID: snapshot.GPUUUID(strings.TrimSpace(g.UUID)), DisplayActive: len(g.Display) > 0 && g.Display[0] == "Enabled"}
		for _, i := range g.Instances {
			details.Instances = append(details.Instances, InstanceDetails{i.InstanceID, mebibytes(i.Total)})
		}
		for _, p := range g.Processes {
			if pid, ok := number(p.PID, math.MaxInt32); ok && pid > 0 {
				details.Processes = append(details.Processes, ProcessDetails{p.InstanceID, snapshot.PID(pid), p.Type, mebibytes(p.Used)})
			}
		}
		d.GPUs = append(d.GPUs, details)
	}
	return d, nil
}

// mebibytes is an amount such as "24 MiB"; unknown if it is none.
func mebibytes(text string) (m snapshot.Memory) {
	if n, ok := number(strings.TrimSuffix(text, " MiB"), maxMiB); ok {
		m = snapshot.MiB(n)
	}
	return m
}

// withoutNames leaves out the lines with names of processes, which their users choose: nvidia-smi
// prints them as they are, so that one may not be XML, or be XML of its own.
func withoutNames(document []byte) []byte {
	var rest []byte
	for line := range bytes.Lines(document) {
		if !bytes.Contains(line, []byte("<process_name>")) {
			rest = append(rest, line...)
		}
	}
	return rest
}

// gpu is the GPU with a UUID; nil for none.
func (d *Details) gpu(uuid snapshot.GPUUUID) *GPUDetails {
	if i := slices.IndexFunc(d.GPUs, func(g GPUDetails) bool { return g.UUID == uuid && uuid != "" }); i >= 0 {
		return &d.GPUs[i]
	}
	return nil
}

// Describe adds to the MIG instances of a GPU how much memory they have, and which of them share
// it. They are in the order of `nvidia-smi -L`.
func (d *Details) Describe(uuid snapshot.GPUUUID, instances []snapshot.Instance) {
	g := d.gpu(uuid)
	if g == nil || len(g.Instances) != len(instances) {
		return
	}
	for i, details := range g.Instances {
		instances[i].Total, instances[i].Pool = details.Memory, details.GI
	}
}

// Instance is the MIG instance of a GPU that a process uses; empty if it uses none, or if that
// isn't known. The lists of processes only name the GPU.
func (d *Details) Instance(uuid snapshot.GPUUUID, pid snapshot.PID, instances []snapshot.Instance) snapshot.GPUUUID {
	g := d.gpu(uuid)
	if g == nil || len(g.Instances) != len(instances) {
		return ""
	}
	at := slices.IndexFunc(g.Processes, func(p ProcessDetails) bool { return p.PID == pid })
	if at < 0 {
		return ""
	}
	for i, details := range g.Instances {
		if details.InstanceID == g.Processes[at].InstanceID {
			return instances[i].UUID
		}
	}
	return ""
}
