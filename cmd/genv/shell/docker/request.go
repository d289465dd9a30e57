package docker

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Environment is what a container may use, and the names that it gets.
type Environment struct {
	EID     snapshot.EnvID
	Name    string
	Devices []snapshot.DeviceIndex // the attached ones
	// UUIDs are those of Devices, in their order, on a guarded host: a docker daemon of the
	// user's own sees only these devices, and counts them from 0. nil for the indices.
	UUIDs []snapshot.GPUUUID
	// Token proves to genv's container runtime who starts the container; empty for none.
	Token string
}

// Why a container can't have the devices that it asks for.
var (
	ErrNoDevices   = errors.New("no device is attached")
	ErrTooMany     = errors.New("more devices than are attached")
	ErrNotAttached = errors.New("not an attached device")
	ErrRequest     = errors.New("not understood")
)

// all recognizes a --gpus that asks for all devices, whatever their number.
func all(value string) bool {
	return value == "all" || value == "-1" || value == "count=all" || value == "count=-1"
}

// gpus rewrites the value of --gpus, which is a line of CSV: "all", a number, or
// fields such as count=2, "device=0,1" and driver=nvidia.
func (env Environment) gpus(value string) (string, error) {
	if all(value) && len(env.Devices) == 0 {
		return "0", nil // all of none, as in 1.4.3
	}
	fields, err := csv.NewReader(strings.NewReader(value)).Read()
	if err != nil {
		return "", fmt.Errorf("--gpus %s: %w: %w", value, ErrRequest, err)
	}
	what, kept := "--gpus "+value, []string{}
	request := func() ([]snapshot.DeviceIndex, error) { return env.first(what, "1") } // docker's default
	for i, field := range fields {
		key, operand, named := strings.Cut(field, "=")
		switch {
		case !named && i == 0:
			request = func() ([]snapshot.DeviceIndex, error) { return env.first(what, field) }
		case key == "count":
			request = func() ([]snapshot.DeviceIndex, error) { return env.first(what, operand) }
		case key == "device":
			request = func() ([]snapshot.DeviceIndex, error) { return env.pick(what, operand) }
		case key == "driver" || key == "capabilities" || key == "options":
			kept = append(kept, field)
		default:
			return "", fmt.Errorf("%s: %w: write --gpus all, a number, or '\"device=0,1\"'", what, ErrRequest)
		}
	}
	devices, err := request()
	if err != nil {
		return "", err
	}
	if len(devices) == 0 {
		return value, nil // --gpus 0
	}
	return line(append([]string{"device=" + env.join(devices)}, kept...))
}

// first picks so many of the attached devices, or all.
func (env Environment) first(what, count string) ([]snapshot.DeviceIndex, error) {
	if count == "all" || count == "-1" {
		return env.pick(what, "all")
	}
	n, err := strconv.ParseUint(count, 10, 16)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %q is not a number of devices", what, ErrRequest, count)
	case n > 0 && len(env.Devices) == 0:
		return nil, env.noDevices(what)
	case n > uint64(len(env.Devices)):
		return nil, fmt.Errorf("%s: %w (%d): run genv attach --count %d first", what, ErrTooMany, len(env.Devices), n)
	}
	return env.Devices[:n], nil
}

// pick passes listed devices that are attached, or all.
func (env Environment) pick(what, list string) ([]snapshot.DeviceIndex, error) {
	if len(env.Devices) == 0 {
		return nil, env.noDevices(what)
	}
	if list == "all" {
		return env.Devices, nil
	}
	if devices, ok := env.byUUID(list); ok {
		return devices, nil
	}
	devices, err := text.ParseIndices[snapshot.DeviceIndex](list)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", what, ErrRequest, err)
	}
	for _, device := range devices {
		if !slices.Contains(env.Devices, device) {
			return nil, fmt.Errorf("%s: %d is %w: this environment has %s", what, device, ErrNotAttached, text.JoinIndices(env.Devices))
		}
	}
	return devices, nil
}

func (env Environment) noDevices(what string) error {
	return fmt.Errorf("%s: %w to environment %s: run genv attach first", what, ErrNoDevices, env.EID)
}

// line writes fields as docker reads them.
func line(fields []string) (string, error) {
	var text strings.Builder
	w := csv.NewWriter(&text)
	if err := w.Write(fields); err != nil {
		return "", err
	}
	w.Flush()
	return strings.TrimSuffix(text.String(), "\n"), w.Error()
}

// cdi is how --device names GPUs by the Container Device Interface.
const cdi = "nvidia.com/gpu="

// cdi rewrites one such flag, which names one device or all. Root makes the names, so they
// are always root's indices.
func (env Environment) cdi(value string) ([]string, error) {
	devices, err := env.pick("--device "+value, strings.TrimPrefix(value, cdi))
	var args []string
	for _, device := range devices {
		args = append(args, "--device", cdi+device.String())
	}
	return args, err
}

// The variable by which NVIDIA's container runtime chooses devices, and the
// value with which it chooses none.
const (
	visible     = "NVIDIA_VISIBLE_DEVICES"
	visibleNone = "void"
)

// join lists devices as NVIDIA's runtime reads them.
func (env Environment) join(devices []snapshot.DeviceIndex) string {
	if len(devices) == 0 {
		return visibleNone
	}
	if env.UUIDs == nil {
		return text.JoinIndices(devices)
	}
	names := make([]string, len(devices))
	for i, device := range devices {
		names[i] = string(env.UUIDs[slices.Index(env.Devices, device)])
	}
	return strings.Join(names, ",")
}

// byUUID reads a list of UUIDs of attached devices, as CUDA_VISIBLE_DEVICES has them on a
// guarded host.
func (env Environment) byUUID(list string) (devices []snapshot.DeviceIndex, ok bool) {
	for uuid := range strings.SplitSeq(list, ",") {
		i := slices.Index(env.UUIDs, snapshot.GPUUUID(uuid))
		if i < 0 {
			return nil, false
		}
		devices = append(devices, env.Devices[i])
	}
	return devices, true
}
