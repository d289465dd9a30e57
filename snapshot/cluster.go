package snapshot

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Cluster has the hosts of a controller in the administrator's order.
type Cluster struct{ Hosts []Host }

// Host has its last Snapshot or an error, neither before its first answer. No answer is not "no processes".
type Host struct {
	Name     Hostname
	Labels   map[string]string // chosen by the administrator
	Snapshot *Snapshot
	Err      error
	AskedAt  time.Time     // by the monotonic clock; zero for just now
	IsNew    bool          // the answer came after the last judgement
	Round    int           // of the question; 0 outside rounds. Cycles of a policy are rounds
	Took     time.Duration // until the answer came
}

func (h *Host) answered() bool { return h.Err == nil && h.Snapshot != nil }

// Answered lists the hosts with a snapshot.
func (c Cluster) Answered() []Host { return c.where((*Host).answered) }

// Failed lists the hosts with an error.
func (c Cluster) Failed() []Host { return c.where(func(h *Host) bool { return h.Err != nil }) }

func (c Cluster) where(is func(*Host) bool) (list []Host) {
	for i := range c.Hosts {
		if h := &c.Hosts[i]; is(h) {
			list = append(list, *h)
		}
	}
	return list
}

// CountAnswered counts the hosts with a snapshot.
func (c Cluster) CountAnswered() (n int) {
	for i := range c.Hosts {
		if c.Hosts[i].answered() {
			n++
		}
	}
	return n
}

// ProcessKey identifies a process in the cluster for as long as it runs.
type ProcessKey struct {
	Host  Hostname
	PID   PID
	Start StartTime
}

// AttachmentKey identifies an attachment in the cluster.
type AttachmentKey struct {
	Host   Hostname
	Device string // Device.Key
	EID    EnvID
}

// Key is the UUID or, if unknown, the index, which may be another device's later.
func (d *Device) Key() string {
	if d.UUID != "" {
		return string(d.UUID)
	}
	return d.Index.String()
}

// MarshalText implements encoding.TextMarshaler, for keys of JSON objects.
func (k ProcessKey) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s/%d/%d", k.Host, k.PID, k.Start), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *ProcessKey) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), "/")
	if len(parts) != 3 {
		return fmt.Errorf("process %q: want host/pid/start", text)
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil {
		return err
	}
	start, err := strconv.ParseUint(parts[2], 10, 64)
	*k = ProcessKey{Hostname(parts[0]), PID(pid), StartTime(start)}
	return err
}

// MarshalText implements encoding.TextMarshaler, for keys of JSON objects.
func (k AttachmentKey) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s/%s/%s", k.Host, k.Device, k.EID), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *AttachmentKey) UnmarshalText(text []byte) error {
	parts := strings.SplitN(string(text), "/", 3)
	if len(parts) != 3 {
		return fmt.Errorf("attachment %q: want host/device/environment", text)
	}
	*k = AttachmentKey{Hostname(parts[0]), parts[1], EnvID(parts[2])}
	return nil
}

// SameGPU compares two devices by UUID or, if one is unknown, by index.
func SameGPU(a DeviceIndex, aUUID GPUUUID, b DeviceIndex, bUUID GPUUUID) bool {
	if aUUID != "" && bUUID != "" {
		return aUUID == bUUID
	}
	return a == b
}
