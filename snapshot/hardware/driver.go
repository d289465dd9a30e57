package hardware

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ErrGarbled means that neither the driver nor root's genv writes such a file.
var ErrGarbled = errors.New("not understood")

// Count counts the driver's GPUs, also excluded ones; 0 if unknown. It is cheap. proc is /proc's mount point; "" for
// /proc.
func Count(proc string) int {
	entries, err := os.ReadDir(folderIn(proc))
	if err != nil {
		return 0
	}
	return len(entries)
}

const driverFolder = "driver/nvidia/gpus" // below /proc, with a folder for each GPU

func folderIn(proc string) string { return filepath.Join(cmp.Or(proc, "/proc"), driverFolder) }

// FromDriver lists the GPUs in the driver's /proc folder: index (in bus order), address, minor, name, and UUID if
// known. Like nvidia-smi it omits excluded ones (NVreg_ExcludedGpus). proc is as for Count. The error is fs.ErrNotExist
// without a driver; after any other, such as ErrGarbled, nothing is known.
func FromDriver(proc string) ([]BusDevice, error) {
	const maxInformation = 64 << 10 // bytes of a file of the driver, which has a dozen lines
	entries, err := os.ReadDir(folderIn(proc))
	if err != nil {
		return nil, fmt.Errorf("list the driver's GPUs: %w", err)
	}
	var found []information
	for _, e := range entries {
		path := filepath.Join(folderIn(proc), e.Name(), "information")
		data, err := folder.ReadRegular(path, maxInformation)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		info, err := parseInformation(data)
		if err == nil && info.Address != "" && !strings.EqualFold(info.Address, e.Name()) {
			err = fmt.Errorf("%w: it is about the GPU at %s", ErrGarbled, info.Address)
		}
		if err == nil {
			info.at, err = parseAddress(e.Name())
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if info.Address = strings.ToLower(e.Name()); !info.excluded {
			found = append(found, info)
		}
	}
	slices.SortFunc(found, func(x, y information) int { return slices.Compare(x.at[:], y.at[:]) })
	list := make([]BusDevice, len(found))
	for i, f := range found {
		list[i] = f.BusDevice
		list[i].Index = snapshot.DeviceIndex(i)
	}
	return list, checkDistinct(list)
}

type information struct {
	BusDevice
	excluded bool
	at       [4]uint64 // Address
}

// parseInformation parses lines "Key: value". Keys differ between versions of the driver, but all in use write a minor.
func parseInformation(data []byte) (information, error) {
	var info information
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if err := info.set(strings.TrimSpace(key), value); err != nil {
			return information{}, fmt.Errorf("%w: %s", err, text.Quoted(strings.TrimSpace(line), 120))
		}
	}
	if info.Minor == nil {
		return information{}, fmt.Errorf("%w: it has no line \"Device Minor\"", ErrGarbled)
	}
	return info, nil
}

// set takes the value of a key, which may come only once.
func (info *information) set(key, value string) error {
	ok := true
	switch key {
	case "Model":
		ok = info.Name == "" && snapshot.CheckText("name", value) == nil
		info.Name = value
	case "GPU UUID":
		ok = info.UUID == ""
		info.UUID = knownUUID(value)
	case "Bus Location":
		_, err := parseAddress(value)
		ok = err == nil && info.Address == ""
		info.Address = value
	case "Device Minor":
		n, err := strconv.ParseUint(value, 10, minorBits)
		ok = err == nil && info.Minor == nil
		info.Minor = new(int(n))
	case "GPU Excluded", "GPU Blacklisted", "Blacklisted":
		info.excluded = value == "Yes"
	}
	if !ok {
		return ErrGarbled
	}
	return nil
}

const minorBits = 20 // of a device number in Linux: dev_t

// knownUUID is empty for the driver's placeholder of an unknown UUID, "GPU-????????-…".
func knownUUID(value string) snapshot.GPUUUID {
	const maxUUID = 128
	if len(value) > maxUUID || !strings.HasPrefix(value, "GPU-") || !text.IsMadeOf(value, "-") {
		return ""
	}
	return snapshot.GPUUUID(value)
}

// parseAddress parses "domain:bus:device.function" in hexadecimal.
func parseAddress(address string) (at [4]uint64, err error) {
	rest, function, dotted := strings.Cut(address, ".")
	parts := append(strings.Split(rest, ":"), function)
	ok := dotted && len(parts) == len(at)
	for i := 0; ok && i < len(at); i++ {
		at[i], err = strconv.ParseUint(parts[i], 16, 32)
		ok = err == nil
	}
	if !ok {
		err = fmt.Errorf("%w: %s is not an address of the PCI bus", ErrGarbled, text.Quoted(address, 40))
	}
	return at, err
}

// SameAddress compares PCI addresses: nvidia-smi writes more digits than the driver, and capital ones.
func SameAddress(a, b string) bool {
	x, err := parseAddress(a)
	y, otherErr := parseAddress(b)
	return err == nil && otherErr == nil && x == y
}

func checkDistinct(list []BusDevice) error {
	minors, indices, uuids := map[int]bool{}, map[snapshot.DeviceIndex]bool{}, map[snapshot.GPUUUID]bool{}
	for _, d := range list {
		if indices[d.Index] || d.UUID != "" && uuids[d.UUID] || d.Minor != nil && minors[*d.Minor] {
			return fmt.Errorf("%w: two GPUs have one index, UUID or minor", ErrGarbled)
		}
		indices[d.Index], uuids[d.UUID] = true, true
		if d.Minor != nil {
			minors[*d.Minor] = true
		}
	}
	return nil
}
