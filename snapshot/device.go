package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Device is a GPU of the host.
type Device struct {
	Index       DeviceIndex  `json:"index"`
	TotalMemory Memory       `json:"total_memory"`
	Attachments []Attachment `json:"attachments"`

	// Not in the 1.4.3 format; nil or empty also if not reported.

	UUID         GPUUUID    `json:"uuid,omitempty"`
	Name         string     `json:"name,omitempty"`
	Driver       string     `json:"driver,omitempty"`       // its version
	Unidentified bool       `json:"unidentified,omitempty"` // it may be another GPU: attachments are unknown
	Unified      bool       `json:"-"`                      // TotalMemory is the machine's, and total_memory null
	Failed       bool       `json:"failed,omitempty"`       // it doesn't work
	Problem      string     `json:"problem,omitempty"`      // what the driver says about it or a value
	Unusable     string     `json:"unusable,omitempty"`     // why CUDA can't use it although it works; empty if it can
	MIGMode      bool       `json:"mig_mode,omitempty"`     // CUDA can only use its MIG instances
	Display      *bool      `json:"display,omitempty"`      // a screen was active when nvidia-smi was last asked
	UsedMemory   Memory     `json:"used_memory,omitzero"`
	Utilization  *int       `json:"utilization,omitempty"` // per cent over the driver's last sample
	Temperature  *int       `json:"temperature,omitempty"` // degrees Celsius
	Power        *float64   `json:"power,omitempty"`       // watts
	PowerLimit   *float64   `json:"power_limit,omitempty"` // watts
	Instances    []Instance `json:"mig,omitempty"`

	// ProcessesUnknown says that processes may be missing: the driver doesn't report them, or they can't be seen.
	ProcessesUnknown bool `json:"processes_unknown,omitempty"`
}

// Attachment gives an environment the right to use a device.
type Attachment struct {
	EID       EnvID  `json:"eid"`
	GPUMemory Memory `json:"gpu_memory"` // capacity; unknown for "all of it"
	Time      Date   `json:"time"`       // when it was attached, as its user wrote it

	// Not in the 1.4.3 format, and outside the attachments in our own: see deviceOf.

	Since     StartTime `json:"-"` // when its age begins, not before root's last look without it; 0 if unknown
	Instances []GPUUUID `json:"-"` // of MIG; empty for the whole device
}

func (a *Attachment) read(r *reader) (Attachment, error) {
	if a.EID == "" {
		return *a, errors.New("it has no id")
	}
	a.EID = r.id(a.EID)
	return *a, nil
}

// Instance is a MIG instance: a part of a device that works as a device.
type Instance struct {
	UUID    GPUUUID `json:"uuid"`              // "MIG-…"
	Profile string  `json:"profile,omitempty"` // such as "1g.10gb"
	Total   Memory  `json:"total_memory,omitzero"`
	Pool    string  `json:"pool,omitempty"` // the GPU instance with that memory, which several may share
}

// Memory is the size in its profile (`nvidia-smi -L`), else Total, which a process could falsify by its name.
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

const maxInstances = 64 * maxDevices // far above the 7 GPU instances with 7 compute instances of a device

// CheckInstance refuses what can't be a MIG instance's UUID. Its error wraps ErrInvalid.
func CheckInstance(uuid GPUUUID) error {
	if !strings.HasPrefix(string(uuid), "MIG-") || len(uuid) > 128 || !text.IsMadeOf(string(uuid), "-/") {
		return fmt.Errorf("%w: %s is not the UUID of a MIG instance", ErrInvalid, text.Quoted(string(uuid), 80))
	}
	return nil
}

// CheckInstances is CheckInstance for a list, and bounds its length.
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

func (d *Device) document() deviceOf {
	doc := deviceOf{Index: &d.Index, Device: d, TotalMemory: &d.TotalMemory, Since: make(map[EnvID]StartTime)}
	if d.Unified {
		doc.TotalMemory = nil
	}
	for _, a := range d.Attachments {
		if a.Since != 0 {
			doc.Since[a.EID] = a.Since
		}
		if len(a.Instances) > 0 {
			doc.Parts = append(doc.Parts, partOf{a.EID, a.Instances})
		}
	}
	return doc
}

func (doc *deviceOf) read(r *reader) (Device, error) {
	d := cmp.Or(doc.Device, &Device{})
	if doc.Index != nil {
		d.Index = *doc.Index
		r.at("", int(d.Index))
	}
	d.Unified, d.TotalMemory = doc.TotalMemory == nil, orZero(doc.TotalMemory)
	attachments, err := kept(r, d.Attachments, "attachment", maxAttachments, (*Attachment).read, idOfAttachment)
	d.Attachments = attachments
	d.Utilization = measured(r, "utilization", d.Utilization, checkUtilization)
	d.Temperature = measured(r, "temperature", d.Temperature, CheckTemperature)
	d.Power = measured(r, "power", d.Power, CheckPower)
	d.PowerLimit = measured(r, "power_limit", d.PowerLimit, CheckPower)
	cleanText(r, "name", &d.Name)
	cleanText(r, "driver", &d.Driver)
	cleanText(r, "problem", &d.Problem)
	cleanText(r, "reason", &d.Unusable)
	if r.leaveOut("uuid", CheckText("it", string(d.UUID))) {
		d.UUID, d.Unidentified = "", true
	}
	d.Instances = slices.DeleteFunc(d.Instances[:min(len(d.Instances), maxInstances)], func(i Instance) bool {
		err := cmp.Or(CheckInstance(i.UUID), CheckText("profile", i.Profile), CheckText("pool", i.Pool))
		return r.leaveOut("an instance", err)
	})
	for i := range d.Attachments {
		d.Attachments[i].Since = doc.Since[d.Attachments[i].EID]
	}
	for _, part := range doc.Parts {
		a := d.Attachment(r.id(part.EID))
		switch {
		case a == nil:
		case r.leaveOut("attached_mig", CheckInstances(part.Instances)):
			d.Unidentified = true // what is attached to the device is unknown
		default:
			a.Instances = part.Instances
		}
	}
	return *d, cmp.Or(checkIndex(doc.Index), err)
}

// ComputesLess says whether it certainly computes less than below per cent.
func (d *Device) ComputesLess(below int) bool {
	return below > 0 && d.Utilization != nil && *d.Utilization < below
}

// DrawsLess says whether it certainly draws less than below per cent of its limit, which is unknown with MIG.
func (d *Device) DrawsLess(below int) bool {
	if d.MIGMode || len(d.Instances) > 0 || d.Power == nil || d.PowerLimit == nil {
		return false
	}
	return *d.Power*100 < *d.PowerLimit*float64(below)
}

// Works reports whether CUDA can use the device or a part of it.
func (d *Device) Works() bool { return !d.Failed && d.Unusable == "" }

// Judged says whether rules apply: the device works, its identity is known, and it can be attached.
func (d *Device) Judged() bool {
	return !d.Failed && !d.Unidentified && (d.Unified || d.TotalMemory.Known())
}

// SameTotal compares the total memory in any notation, and whether it is the machine's.
func (d *Device) SameTotal(o *Device) bool {
	return d.TotalMemory.Bytes() == o.TotalMemory.Bytes() && d.TotalMemory.OfMachine() == o.TotalMemory.OfMachine()
}

// Capacity is the device's own memory; unknown also if it shares the machine's.
func (d *Device) Capacity() Memory {
	if d.Unified {
		return Memory{}
	}
	return d.TotalMemory
}
