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

// Details is the answer of `nvidia-smi -q -x`. It contains names of processes, into which users can put any lines: it
// may only spare processes.
type Details struct {
	Instances map[snapshot.GPUUUID][]InstanceDetails // in the order of `nvidia-smi -L`
	Drawing   map[snapshot.PID]snapshot.ProcessType  // of processes that draw, on any GPU
	Time      Time
}

// InstanceDetails describes a MIG instance: a compute instance of a GPU instance.
type InstanceDetails struct {
	Memory snapshot.Memory // less than its profile's name says
	Pool   string          // the GPU instance, whose compute instances share the memory
	PIDs   []snapshot.PID  // that use it
}

// DetailsArgs returns the arguments for ParseDetails.
func DetailsArgs() []string { return []string{"-q", "-x"} }

// Details asks for all GPUs, which takes longer than the other questions.
func (q *Querier) Details(ctx context.Context, oldest time.Duration) (Details, error) {
	details, at, err := query(ctx, q.details, DetailsArgs(), oldest, ParseDetails)
	details.Time = at
	return details, err
}

// ParseDetails parses the answer for DetailsArgs. The error, also for an incomplete answer, is an *ExitError.
func ParseDetails(out RunResult) (Details, error) {
	rest, _, complete := Split(out)
	if !complete || !bytes.HasSuffix(bytes.TrimSpace(rest), []byte("</nvidia_smi_log>")) {
		return Details{}, sortLines(out).failure()
	}
	return Details{Instances: parseInstances(rest), Drawing: drawing(rest)}, nil
}

// drawing reads text: in XML, a name could hide another process in a comment. In text, a name can only add lines, since
// the PID and the type come before it.
func drawing(document []byte) map[snapshot.PID]snapshot.ProcessType {
	types := make(map[snapshot.PID]snapshot.ProcessType)
	for _, m := range regexp.MustCompile(`<pid>([0-9]+)</pid>\s*<type>(C\+G|G)</type>`).FindAllSubmatch(document, -1) {
		if pid, ok := number(string(m[1]), math.MaxInt32); ok {
			types[snapshot.PID(pid)] = snapshot.ProcessType(m[2])
		}
	}
	return types
}

// parseInstances returns nothing if a name makes the document invalid XML.
func parseInstances(document []byte) map[snapshot.GPUUUID][]InstanceDetails {
	type instanceID struct {
		GI string `xml:"gpu_instance_id"`
		CI string `xml:"compute_instance_id"`
	}
	var log struct {
		GPUs []struct {
			UUID      string `xml:"uuid"`
			Instances []struct {
				instanceID
				Total string `xml:"fb_memory_usage>total"`
			} `xml:"mig_devices>mig_device"`
			Processes []struct {
				instanceID
				PID string `xml:"pid"`
			} `xml:"processes>process_info"`
		} `xml:"gpu"`
	}
	if xml.Unmarshal(withoutNames(document), &log) != nil {
		return nil
	}
	all := make(map[snapshot.GPUUUID][]InstanceDetails)
	for _, g := range log.GPUs {
		var list []InstanceDetails
		for _, i := range g.Instances {
			details := InstanceDetails{Memory: mebibytes(i.Total), Pool: i.GI}
			for _, p := range g.Processes {
				if pid, ok := number(p.PID, math.MaxInt32); ok && p.instanceID == i.instanceID {
					details.PIDs = append(details.PIDs, snapshot.PID(pid))
				}
			}
			list = append(list, details)
		}
		all[snapshot.GPUUUID(strings.TrimSpace(g.UUID))] = list
	}
	return all
}

func mebibytes(text string) (m snapshot.Memory) {
	if n, ok := number(strings.TrimSuffix(text, " MiB"), maxMiB); ok {
		m = snapshot.MiB(n)
	}
	return m
}

// withoutNames removes the lines with names of processes, which nvidia-smi doesn't escape.
func withoutNames(document []byte) []byte {
	var rest []byte
	for line := range bytes.Lines(document) {
		if !bytes.Contains(line, []byte("<process_name>")) {
			rest = append(rest, line...)
		}
	}
	return rest
}

// Divide adds MIG instances where some may be unknown, and attributes their usage to GPUs. Only `nvidia-smi -L` lists
// instances: list asks for them (ParseList), and ask for the details to return.
func (l *Listing) Divide(usage *Usage, list func() ([]snapshot.Device, error), ask func() (Details, error),
) (details Details) {
	if l.mayLackInstances(usage) {
		details = l.divide(list, ask)
	}
	usage.ToParents(l.GPUs)
	return details
}

func (l *Listing) divide(list func() ([]snapshot.Device, error), ask func() (Details, error)) (details Details) {
	listed, _ := list() // without it the instances and their GPUs are unknown
	if slices.ContainsFunc(listed, func(d snapshot.Device) bool { return len(d.Instances) > 0 }) {
		details, _ = ask() // without it the profiles tell their memory
	}
	for _, d := range listed {
		details.Describe(d.UUID, d.Instances)
		if i := slices.IndexFunc(l.GPUs, func(g GPU) bool { return g.UUID == d.UUID }); i >= 0 {
			g := &l.GPUs[i]
			if g.MIGMode && len(d.Instances) == 0 && g.Unusable == "" { // only the mode survives a reboot
				g.Unusable = "it is in MIG mode and has no instance"
			}
			g.Instances = slices.DeleteFunc(d.Instances, func(i snapshot.Instance) bool { return i.UUID == "" })
		}
	}
	return details
}

// mayLackInstances says whether a GPU may have unknown MIG instances: with MIG the driver measures no utilization.
func (l *Listing) mayLackInstances(usage *Usage) bool {
	isUnknown := func(id snapshot.GPUUUID) bool {
		_, listed := parentOf(id, l.GPUs)
		return isInstance(id) && !listed
	}
	mayHave := func(g GPU) bool { return g.MIGMode || g.Utilization == nil && g.UsedMemory.Known() && !g.Failed }
	return slices.ContainsFunc(usage.GPUs(), isUnknown) ||
		slices.ContainsFunc(l.GPUs, func(g GPU) bool { return len(g.Instances) == 0 && mayHave(g) })
}

// of returns the details of a GPU's instances; nil if their number differs from that of `nvidia-smi -L`.
func (d *Details) of(uuid snapshot.GPUUUID, instances []snapshot.Instance) []InstanceDetails {
	if list := d.Instances[uuid]; len(list) == len(instances) {
		return list
	}
	return nil
}

// Describe adds the memory of a GPU's MIG instances, and the pool that some share.
func (d *Details) Describe(uuid snapshot.GPUUUID, instances []snapshot.Instance) {
	for i, details := range d.of(uuid, instances) {
		instances[i].Total, instances[i].Pool = details.Memory, details.Pool
	}
}

// Instance returns the MIG instance of a GPU that a process uses; empty for none or unknown.
func (d *Details) Instance(uuid snapshot.GPUUUID, pid snapshot.PID, instances []snapshot.Instance) snapshot.GPUUUID {
	for i, details := range d.of(uuid, instances) {
		if slices.Contains(details.PIDs, pid) {
			return instances[i].UUID
		}
	}
	return ""
}
