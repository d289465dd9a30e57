package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// What one host may say. The figures are far above real hosts and low enough
// that a hostile one cannot fill the controller's memory.
const (
	maxProcesses    = 65536
	maxEnvironments = 10_000
	maxDevices      = 1024
	maxAttachments  = 65536
	maxPIDs         = 65536
	maxTextLength   = 4096 // bytes
	// maxValues is of a whole document. A list of empty objects takes a hundred
	// times its length in memory, so what is too much is refused unread.
	maxValues = 1 << 20
)

// checkAmount refuses more values than maxValues. A comma stands between any
// two; those in texts count too, which only makes it stricter.
func checkAmount(data []byte) error {
	if n := bytes.Count(data, []byte{','}); n > maxValues {
		return fmt.Errorf("%w: %d values are more than the %d that are read", ErrInvalid, n, maxValues)
	}
	return nil
}

func decodeProcess(data json.RawMessage) (p Process, err error) {
	fields, err := object(data, "pid", "used_gpu_memory", "eid")
	if err != nil {
		return p, err
	}
	if p.PID, err = decodePID(fields[0]); err != nil {
		return p, err
	}
	if p.EID, err = textOrNull[EnvID](fields[2], "eid"); err != nil {
		return p, err
	}
	items, err := array(fields[1], "used_gpu_memory", maxDevices)
	if err != nil {
		return p, err
	}
	p.Usage, err = decodeEach(items, "usage", decodeUsage, usageID)
	return p, err
}

func decodeUsage(data json.RawMessage) (u DeviceUsage, err error) {
	fields, err := object(data, "index", "gpu_memory")
	if err != nil {
		return u, err
	}
	if u.Index, err = decodeIndex(fields[0]); err != nil {
		return u, err
	}
	u.Memory, err = memoryOrNull(fields[1])
	return u, err
}

func decodeEnvironment(data json.RawMessage) (e Environment, err error) {
	f, err := object(data, "eid", "uid", "creation", "username", "config", "pids", "kernel_ids")
	if err != nil {
		return e, err
	}
	if e.EID, err = nonEmpty[EnvID](f[0], "eid"); err != nil {
		return e, err
	}
	uid, err := integer(f[1], "uid", 0, math.MaxUint32)
	if err != nil {
		return e, err
	}
	e.UID = UID(uid)
	if e.Creation, err = date(f[2], "creation"); err != nil {
		return e, err
	}
	if e.Username, err = textOrNull[Username](f[3], "username"); err != nil {
		return e, err
	}
	if e.Config, err = decodeConfig(f[4]); err != nil {
		return e, err
	}
	if e.PIDs, err = each(f[5], "pids", maxPIDs, decodePID); err != nil {
		return e, err
	}
	e.KernelIDs, err = each(f[6], "kernel_ids", maxPIDs, func(raw []byte) (string, error) {
		return nonEmpty[string](raw, "kernel id")
	})
	return e, err
}

func decodeConfig(data []byte) (c EnvConfig, err error) {
	f, err := object(data, "name", "gpu_memory", "gpus")
	if err != nil {
		return c, err
	}
	if c.Name, err = textOrNull[string](f[0], "name"); err != nil {
		return c, err
	}
	if c.GPUMemory, err = memoryOrNull(f[1]); err != nil {
		return c, err
	}
	if string(f[2]) != "null" {
		n, err := integer(f[2], "gpus", 0, math.MaxInt32)
		if err != nil {
			return c, err
		}
		gpus := int(n)
		c.GPUs = &gpus
	}
	return c, nil
}

func decodeDevice(data json.RawMessage) (d Device, err error) {
	f, err := object(data, "index", "total_memory", "attachments")
	if err != nil {
		return d, err
	}
	if d.Index, err = decodeIndex(f[0]); err != nil {
		return d, err
	}
	if d.TotalMemory, err = memoryOrNull(f[1]); err != nil {
		return d, err
	}
	if !d.TotalMemory.Known() {
		return d, fmt.Errorf("%w: total_memory is missing", ErrInvalid)
	}
	items, err := array(f[2], "attachments", maxAttachments)
	if err != nil {
		return d, err
	}
	d.Attachments, err = decodeEach(items, "attachment", decodeAttachment, attachmentID)
	return d, err
}

func decodeAttachment(data json.RawMessage) (a Attachment, err error) {
	f, err := object(data, "eid", "gpu_memory", "time")
	if err != nil {
		return a, err
	}
	if a.EID, err = nonEmpty[EnvID](f[0], "eid"); err != nil {
		return a, err
	}
	if a.GPUMemory, err = memoryOrNull(f[1]); err != nil {
		return a, err
	}
	a.Time, err = date(f[2], "time")
	return a, err
}

func decodePID(data []byte) (PID, error) {
	n, err := integer(data, "pid", 1, math.MaxInt32)
	return PID(n), err
}

func decodeIndex(data []byte) (DeviceIndex, error) {
	n, err := integer(data, "index", 0, maxDevices-1)
	return DeviceIndex(n), err
}
