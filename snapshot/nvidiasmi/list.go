package nvidiasmi

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
)

// Listed is a device of `nvidia-smi -L` with the MIG instances under it.
type Listed struct {
	Index snapshot.DeviceIndex
	UUID  snapshot.GPUUUID
	MIG   []snapshot.GPUUUID
}

// ListArgs are the arguments whose output ParseList reads.
func ListArgs() []string { return []string{"-L"} }

// List lists the devices with their MIG instances.
func (c *Client) List(ctx context.Context) ([]Listed, error) {
	out, err := c.ask(ctx, ListArgs())
	if err != nil {
		return nil, err
	}
	return ParseList(out)
}

var (
	gpuLine = regexp.MustCompile(`^GPU (\d{1,4}): .* \(UUID: ([A-Za-z0-9/_-]{1,128})\)$`)
	migLine = regexp.MustCompile(`^\s+MIG .*\(UUID: ([A-Za-z0-9/_-]{1,128})\)$`)
)

// ParseList reads what `nvidia-smi -L` prints. Its error is ErrGarbled. Lines
// under a device that name no MIG instance are passed over.
func ParseList(data []byte) ([]Listed, error) {
	var devices []Listed
	for line := range lines(data) {
		if m := gpuLine.FindStringSubmatch(line); m != nil {
			index, _ := strconv.Atoi(m[1]) // at most four digits
			devices = append(devices, Listed{Index: snapshot.DeviceIndex(index), UUID: snapshot.GPUUUID(m[2])})
			continue
		}
		if line[0] != ' ' && line[0] != '\t' || len(devices) == 0 {
			return nil, garbled(line)
		}
		if m := migLine.FindStringSubmatch(line); m != nil {
			last := &devices[len(devices)-1]
			last.MIG = append(last.MIG, snapshot.GPUUUID(m[1]))
		}
	}
	if len(devices) == 0 {
		return nil, fmt.Errorf("%w: it lists no GPU", ErrGarbled)
	}
	return devices, nil
}
