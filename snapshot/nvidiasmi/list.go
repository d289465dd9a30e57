package nvidiasmi

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// ListedGPU is a device of `nvidia-smi -L` with the MIG instances under it.
type ListedGPU struct {
	Index snapshot.DeviceIndex
	UUID  snapshot.GPUUUID
	MIG   []snapshot.GPUUUID
}

// ListArgs are the arguments whose output ParseList reads.
func ListArgs() []string { return []string{"-L"} }

// List lists the devices with their MIG instances.
func (c *Client) List(ctx context.Context) ([]ListedGPU, error) {
	out, err := c.ask(ctx, ListArgs())
	if err != nil {
		return nil, err
	}
	return ParseList(out)
}

// ParseList reads what `nvidia-smi -L` prints. Its error is ErrGarbled. Lines
// under a device that name no MIG instance are passed over.
func ParseList(data []byte) ([]ListedGPU, error) {
	var devices []ListedGPU
	for line := range lines(data) {
		uuid, named := listedUUID(line)
		if line[0] != ' ' && line[0] != '\t' {
			index, ok := listedIndex(line)
			if !ok || !named {
				return nil, garbled(line)
			}
			devices = append(devices, ListedGPU{Index: index, UUID: uuid})
			continue
		}
		if len(devices) == 0 {
			return nil, garbled(line)
		}
		if named && strings.HasPrefix(strings.TrimLeft(line, " \t"), "MIG ") {
			last := &devices[len(devices)-1]
			last.MIG = append(last.MIG, uuid)
		}
	}
	if len(devices) == 0 {
		return nil, fmt.Errorf("%w: it lists no GPU", ErrGarbled)
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
