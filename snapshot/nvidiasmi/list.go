package nvidiasmi

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ListArgs are the arguments for the output that ParseList reads.
func ListArgs() []string { return []string{"-L"} }

// List lists the devices: their indices, UUIDs and MIG instances.
func (q *Querier) List(ctx context.Context, oldest time.Duration) ([]snapshot.Device, error) {
	list, _, err := query(ctx, q, ListArgs(), oldest, ParseList)
	return list, err
}

// ParseList parses the answer of `nvidia-smi -L`. It ignores remarks, and lines under a device
// that don't name a MIG instance. An error is an *ExitError: no device is listed.
func ParseList(out RunResult) ([]snapshot.Device, error) {
	a := sortLines(out)
	var devices []snapshot.Device
	under := false // the line before was one of a device or below it
	for _, line := range a.lines {
		uuid, named := listedUUID(line)
		if line[0] != ' ' && line[0] != '\t' {
			index, ok := listedIndex(line)
			if under = ok && named; under {
				devices = append(devices, snapshot.Device{Index: index, UUID: uuid})
			}
			continue
		}
		if mig, isInstance := strings.CutPrefix(strings.TrimLeft(line, " \t"), "MIG "); under && named && isInstance {
			last := &devices[len(devices)-1]
			last.Instances = append(last.Instances, snapshot.Instance{UUID: uuid, Profile: listedProfile(mig)})
		}
	}
	if len(devices) == 0 {
		return nil, a.failure()
	}
	return devices, nil
}

// listedIndex is N in "GPU N: …".
func listedIndex(line string) (snapshot.DeviceIndex, bool) {
	rest, isGPU := strings.CutPrefix(line, "GPU ")
	number, _, ends := strings.Cut(rest, ":")
	index, err := strconv.ParseUint(number, 10, 31)
	return snapshot.DeviceIndex(index), isGPU && ends && err == nil && index <= maxIndex
}

// listedProfile is P in "P  Device  0: …"; empty if it isn't one.
func listedProfile(rest string) string {
	profile, _, _ := strings.Cut(rest, " ")
	if len(profile) > maxProfile || !text.IsMadeOf(profile, ".+-") {
		return ""
	}
	return profile
}

// maxProfile is more than the length of any profile's name, such as "1c.3g.40gb+me".
const maxProfile = 40

// listedUUID is X in "… (UUID: X)" at the end of a line.
func listedUUID(line string) (snapshot.GPUUUID, bool) {
	const mark = "(UUID: "
	at := strings.LastIndex(line, mark)
	if at < 0 {
		return "", false
	}
	uuid, ends := strings.CutSuffix(line[at+len(mark):], ")")
	return snapshot.GPUUUID(uuid), ends && isUUID(uuid)
}
