package extension

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// Key names a Use: a user, by the uid that the kernel reports, on a device of a host.
type Key struct {
	Host  snapshot.Hostname
	UID   snapshot.UID
	Index snapshot.DeviceIndex
}

// MarshalText implements encoding.TextMarshaler, for keys of JSON objects.
func (k Key) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s/%d/%d", k.Host, k.UID, k.Index), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Key) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), "/")
	if len(parts) != 3 {
		return fmt.Errorf("extension %q: want host/uid/device", text)
	}
	uid, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil {
		return err
	}
	index, err := strconv.Atoi(parts[2])
	*k = Key{snapshot.Hostname(parts[0]), snapshot.UID(uid), snapshot.DeviceIndex(index)}
	return err
}
