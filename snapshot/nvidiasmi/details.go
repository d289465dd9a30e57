package nvidiasmi

import (
	"bytes"
	"context"
	"encoding/xml"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Details is what `nvidia-smi -q -x` says: which processes draw, and which MIG instances processes use. It prints
// names of processes, which may have lines of any content: what it says of a process only ever spares that.
type Details struct {
	GPUs []GPUDetails
	// Drawing are the types of processes that draw, on whichever GPU.
	Drawing map[snapshot.PID]snapshot.ProcessType
	Time    Time
}

// Displays says of GPUs whether a display is active on them, or may be.
type Displays struct {
	Active map[snapshot.GPUUUID]bool // nil if nothing is known
	Time   Time
}

// dark says that no display is active on a GPU.
func (d *Displays) dark(gpu snapshot.GPUUUID) bool {
	active, known := d.Active[gpu]
	return known && !active
}

// GPUDetails is a GPU in Details.
type GPUDetails struct {
	UUID      snapshot.GPUUUID
	Instances []InstanceDetails // in the order of `nvidia-smi -L`
	Processes []ProcessDetails
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

// ProcessDetails is a process on a MIG instance.
type ProcessDetails struct {
	InstanceID
	PID snapshot.PID
}

// DetailsArgs are the arguments for the output that ParseDetails reads.
func DetailsArgs() []string { return []string{"-q", "-x"} }

// DisplaysArgs are the arguments for the output that ParseDisplays reads. No name of a process is in it.
func DisplaysArgs() []string {
	return []string{"--query-gpu=uuid,display_active", "--format=csv,noheader"}
}

// Details asks for the details of all GPUs, which takes longer than the other questions.
func (q *Querier) Details(ctx context.Context, oldest time.Duration) (Details, error) {
	details, at, err := query(ctx, q.details, DetailsArgs(), oldest, ParseDetails)
	details.Time = at
	return details, err
}

// Displays asks for the active displays.
func (q *Querier) Displays(ctx context.Context, oldest time.Duration) (Displays, error) {
	displays, at, err := query(ctx, q, DisplaysArgs(), oldest, ParseDisplays)
	displays.Time = at
	return displays, err
}

// ParseDisplays parses the answer for DisplaysArgs. Only "Disabled" says that there is no active display.
func ParseDisplays(out RunResult) (Displays, error) {
	a, active := sortLines(out), make(map[snapshot.GPUUUID]bool)
	for _, line := range a.lines {
		if uuid, state, ok := strings.Cut(line, ","); ok {
			gpu := snapshot.GPUUUID(known(uuid))
			active[gpu] = active[gpu] || known(state) != "Disabled"
		}
	}
	if len(active) == 0 {
		return Displays{}, a.failure()
	}
	return Displays{Active: active}, nil
}

// ParseDetails parses the answer for DetailsArgs. An error is an *ExitError: an answer that isn't
// complete is none.
func ParseDetails(out RunResult) (Details, error) {
	rest, _, complete := Split(out)
	if !complete || !bytes.HasSuffix(bytes.TrimSpace(rest), []byte("</nvidia_smi_log>")) {
		return Details{}, sortLines(out).failure()
	}
	return Details{GPUs: parseInstances(rest), Drawing: drawing(rest)}, nil
}

// drawing reads the document as text. In XML a name could hide what is said of another process, by a comment
// around it. In text it can add lines, but takes none away: the PID and the type come before it.
func drawing(document []byte) map[snapshot.PID]snapshot.ProcessType {
	types := make(map[snapshot.PID]snapshot.ProcessType)
	for _, m := range regexp.MustCompile(`<pid>([0-9]+)</pid>\s*<type>(C\+G|G)</type>`).FindAllSubmatch(document, -1) {
		if pid, ok := number(string(m[1]), math.MaxInt32); ok {
			types[snapshot.PID(pid)] = snapshot.ProcessType(m[2])
		}
	}
	return types
}

// parseInstances is what the document says about MIG instances; nothing if a name makes it no XML.
func parseInstances(document []byte) (gpus []GPUDetails) {
	var log struct {
		GPUs []struct {
			UUID      string `xml:"uuid"`
			Instances []struct {
				InstanceID
				Total string `xml:"fb_memory_usage>total"`
			} `xml:"mig_devices>mig_device"`
			Processes []struct {
				InstanceID
				PID string `xml:"pid"`
			} `xml:"processes>process_info"`
		} `xml:"gpu"`
	}
	if xml.Unmarshal(withoutNames(document), &log) != nil {
		return nil
	}
	for _, g := range log.GPUs {
		details := GPUDetails{UUID: snapshot.GPUUUID(strings.TrimSpace(g.UUID))}
		for _, i := range g.Instances {
			details.Instances = append(details.Instances, InstanceDetails{i.InstanceID, mebibytes(i.Total)})
		}
		for _, p := range g.Processes {
			if pid, ok := number(p.PID, math.MaxInt32); ok && pid > 0 {
				details.Processes = append(details.Processes, ProcessDetails{p.InstanceID, snapshot.PID(pid)})
			}
		}
		gpus = append(gpus, details)
	}
	return gpus
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
