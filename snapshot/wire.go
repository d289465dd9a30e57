package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// The wire types are what both formats have in common, with the keys of 1.4.3 in
// the order in which it writes them. A number of which 0 has a meaning is a pointer,
// so that an absent one is noticed.
type (
	wireProcess struct {
		PID   PID         `json:"pid"`
		Usage []wireUsage `json:"used_gpu_memory"`
		EID   *EnvID      `json:"eid"`
	}
	wireUsage struct {
		Index  *DeviceIndex `json:"index"`
		Memory *string      `json:"gpu_memory"`
	}
	wireEnvironment struct {
		EID       EnvID      `json:"eid"`
		UID       *UID       `json:"uid"`
		Creation  string     `json:"creation"`
		Username  *Username  `json:"username"`
		Config    wireConfig `json:"config"`
		PIDs      []PID      `json:"pids"`
		KernelIDs []string   `json:"kernel_ids"`
	}
	wireConfig struct {
		Name      *string `json:"name"`
		GPUMemory *string `json:"gpu_memory"`
		GPUs      *int    `json:"gpus"`
	}
	wireDevice struct {
		Index       *DeviceIndex     `json:"index"`
		TotalMemory string           `json:"total_memory"`
		Attachments []wireAttachment `json:"attachments"`
	}
	wireAttachment struct {
		EID       EnvID   `json:"eid"`
		GPUMemory *string `json:"gpu_memory"`
		Time      string  `json:"time"`
	}
)

// Limits for what one host reports: far above real hosts, and low enough that a
// hostile one can't fill the controller's memory.
const (
	maxProcesses    = maxObjects // of which Bound keeps some
	maxEnvironments = maxObjects
	maxDevices      = 1024
	maxAttachments  = 65536
	maxPIDs         = 65536 // with kernels, of all environments: each is looked up under the lock
	maxTextLength   = 4096  // bytes
	// maxValues and maxObjects are for a whole document. A decoded process takes 600 bytes, and as an
	// empty object 3 before, so a larger document is not decoded.
	maxValues  = 1 << 20
	maxObjects = 1 << 17
	// maxReason is the maximum length in bytes of an error of package json, which
	// repeats the input.
	maxReason = 200
)

// CheckAmount refuses JSON with more values or objects than a host can have to report, before it is decoded. Its
// error wraps ErrInvalid.
func CheckAmount(data []byte) error {
	if bytes.Count(data, []byte{','}) <= maxValues && bytes.Count(data, []byte{'{'}) <= maxObjects {
		return nil
	}
	switch values, objects := amountOf(data); {
	case values > maxValues:
		return tooMany(values, "values", maxValues)
	case objects > maxObjects:
		return tooMany(objects, "objects", maxObjects)
	}
	return nil
}

// amountOf counts the commas between values, and the objects. Those in texts don't count: users choose the command
// lines of their processes.
func amountOf(data []byte) (values, objects int) {
	inText := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inText = !inText
		case inText && c == '\\':
			i++
		case inText:
		case c == ',':
			values++
		case c == '{':
			objects++
		}
	}
	return values, objects
}

func tooMany(n int, what string, limit int) error {
	return fmt.Errorf("%w: %d %s are more than the maximum of %d", ErrInvalid, n, what, limit)
}

func unmarshal(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %s", ErrInvalid, text.Cut(err.Error(), maxReason))
	}
	return nil
}

func processToWire(p *Process) wireProcess {
	w := wireProcess{PID: p.PID, EID: orNull(p.EID), Usage: make([]wireUsage, 0, len(p.Usage))}
	for i := range p.Usage {
		u := &p.Usage[i]
		w.Usage = append(w.Usage, wireUsage{Index: &u.Index, Memory: orNull(u.Memory.String())})
	}
	return w
}

func environmentsToWire(envs []Environment) []wireEnvironment {
	out := make([]wireEnvironment, 0, len(envs))
	for i := range envs {
		e := &envs[i]
		config := wireConfig{Name: orNull(e.Config.Name), GPUMemory: orNull(e.Config.GPUMemory.String()), GPUs: e.Config.GPUs}
		out = append(out, wireEnvironment{
			EID: e.EID, UID: &e.UID, Creation: e.Creation.String(), Username: orNull(e.Username),
			Config: config, PIDs: orEmpty(e.PIDs), KernelIDs: orEmpty(e.KernelIDs),
		})
	}
	return out
}

func devicesToWire(devices []Device) []wireDevice {
	out := make([]wireDevice, 0, len(devices))
	for i := range devices {
		d := &devices[i]
		attachments := make([]wireAttachment, 0, len(d.Attachments))
		for _, a := range d.Attachments {
			attachments = append(attachments, wireAttachment{EID: a.EID, GPUMemory: orNull(a.GPUMemory.String()), Time: a.Time.String()})
		}
		out = append(out, wireDevice{Index: &d.Index, TotalMemory: d.TotalMemory.String(), Attachments: attachments})
	}
	return out
}

// orNull is nil, which JSON writes as null, for an empty text.
func orNull[T ~string](s T) *T {
	if s == "" {
		return nil
	}
	return &s
}

// orEmpty is an empty slice for nil, which JSON would write as null.
func orEmpty[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
