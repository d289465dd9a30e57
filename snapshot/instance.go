package snapshot

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Instance is a part of a device that works as a device of its own (MIG).
type Instance struct {
	UUID    GPUUUID // "MIG-…"
	Profile string  // such as "1g.10gb"; empty if it is unknown
	// Total is how much memory it has, and Pool the GPU instance to which that belongs: all
	// instances of a device with the same one share it. Unknown and empty if not reported.
	Total Memory
	Pool  string
}

// Memory is how much memory the instance has at most, by its profile, which `nvidia-smi -L` names. Total counts only
// without one: it comes from the list of processes, where a process's name could make it smaller.
func (i Instance) Memory() Memory {
	for part := range strings.SplitSeq(i.Profile, ".") {
		size, _, _ := strings.Cut(part, "+") // as in 1g.10gb+me
		if digits, isSize := strings.CutSuffix(size, "gb"); isSize {
			if gib, err := strconv.ParseUint(digits, 10, 16); err == nil && gib > 0 {
				return MiB(int64(gib) << 10)
			}
		}
	}
	return i.Total
}

// maxInstances is how many MIG instances of a device or a process are accepted: no device
// has more than 7 GPU instances, each with up to 7 compute instances.
const maxInstances = 64 * maxDevices

// CheckInstance returns an error, which wraps ErrInvalid, unless a text can be the UUID of a
// MIG instance.
func CheckInstance(uuid GPUUUID) error {
	if !strings.HasPrefix(string(uuid), "MIG-") || len(uuid) > 128 || !text.IsMadeOf(string(uuid), "-/") {
		return fmt.Errorf("%w: %s is not the UUID of a MIG instance", ErrInvalid, text.Quoted(string(uuid), 80))
	}
	return nil
}

// CheckInstances is CheckInstance for a list, which must not be too long.
func CheckInstances(list []GPUUUID) error {
	if len(list) > maxInstances {
		return tooMany(len(list), "MIG instances", maxInstances)
	}
	for _, uuid := range list {
		if err := CheckInstance(uuid); err != nil {
			return err
		}
	}
	return nil
}

func nativeInstances(list []Instance) []nativeInstance {
	out := make([]nativeInstance, len(list))
	for i, instance := range list {
		out[i] = nativeInstance{instance.UUID, instance.Profile, instance.Total.String(), instance.Pool}
	}
	return out
}

// instances are those that can be read.
func (r *reader) instances(list []nativeInstance) (instances []Instance) {
	for _, n := range list[:min(len(list), maxInstances)] {
		if r.leavesOut("an instance", CheckInstance(n.UUID)) {
			continue
		}
		cleanText(r, "profile", &n.Profile)
		cleanText(r, "pool", &n.Pool)
		instances = append(instances, Instance{n.UUID, n.Profile, r.memory("total_memory", n.Total), n.Pool})
	}
	return instances
}

func nativeParts(attachments []Attachment) (parts []nativePart) {
	for _, a := range attachments {
		if len(a.Instances) > 0 {
			parts = append(parts, nativePart{a.EID, a.Instances})
		}
	}
	return parts
}

// markParts sets the Instances of attachments. If they can't be read, what is attached to the
// device is unknown.
func (r *reader) markParts(d *Device, parts []nativePart) {
	for _, part := range parts {
		a := d.Attachment(r.id(part.EID))
		if a == nil {
			continue
		}
		if r.leavesOut("attached_mig", CheckInstances(part.Instances)) {
			d.Unidentified = true
			continue
		}
		a.Instances = part.Instances
	}
}
