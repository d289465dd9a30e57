package user

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// instances reads --mig: which MIG instances of which devices it means. Which ones are free
// is decided again when they are attached.
func (w *person) instances(c *cli.Context) ([]state.InstanceRequest, error) {
	if !c.IsSet("mig") {
		return nil, nil
	}
	devices, err := w.Machine.Instances(c.Context)
	if err != nil {
		return nil, err
	}
	files, err := w.StateFiles(c.Context)
	if err != nil {
		return nil, err
	}
	var requests []state.InstanceRequest
	for name := range strings.SplitSeq(c.String("mig"), ",") {
		request, known := chooseInstance(devices, files.Devices, strings.TrimSpace(name), requests)
		switch {
		case request != nil:
			requests = append(requests, *request)
		case known:
			return nil, &state.UnavailableError{Reason: "no MIG instance of profile " + text.Shown(name) + " is free"}
		default:
			return nil, command.UsageError("--mig %s: there is no such MIG instance or profile here; %s", text.Shown(name), listed(devices))
		}
	}
	return requests, nil
}

// chooseInstance finds the instance with a UUID, or the first one of a profile to which no
// environment is attached. known says that there is one.
func chooseInstance(devices, attached []snapshot.Device, name string, taken []state.InstanceRequest) (request *state.InstanceRequest, known bool) {
	for i := range devices {
		d := &devices[i]
		for _, instance := range d.Instances {
			byUUID := instance.UUID == snapshot.GPUUUID(name)
			if !byUUID && (name == "" || instance.Profile != name) {
				continue
			}
			known = true
			chosen := state.InstanceRequest{Index: d.Index, UUID: instance.UUID, Memory: instance.Memory()}
			if byUUID || !slices.Contains(taken, chosen) && isFree(snapshot.FindDevice(attached, d.Index), instance.UUID) {
				return &chosen, true
			}
		}
	}
	return nil, known
}

// isFree says whether no environment has a MIG instance of a device, or all of the device.
func isFree(d *snapshot.Device, uuid snapshot.GPUUUID) bool {
	return d == nil || !slices.ContainsFunc(d.Attachments, func(a snapshot.Attachment) bool {
		return len(a.Instances) == 0 || slices.Contains(a.Instances, uuid)
	})
}

// listed names the MIG instances of devices.
func listed(devices []snapshot.Device) string {
	var names []string
	for i := range devices {
		for _, instance := range devices[i].Instances {
			names = append(names, strings.TrimSpace(instance.Profile+" "+string(instance.UUID))+" of GPU "+devices[i].Index.String())
		}
	}
	if names == nil {
		return "nvidia-smi lists no MIG instances"
	}
	return "there are " + strings.Join(names, ", ")
}
