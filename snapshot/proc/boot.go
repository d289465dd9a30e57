package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// BootID is /proc/sys/kernel/random/boot_id, which differs for each boot of this machine.
// Start times are comparable only within one boot.
func (fs FS) BootID() (string, error) {
	path := filepath.Join(fs.root(), "sys/kernel/random/boot_id")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	id := strings.TrimSpace(string(data))
	if !isBootID(id) {
		return "", fmt.Errorf("read the boot id: %s does not contain one", path)
	}
	return id, nil
}

// isBootID says whether a text has the form of a UUID.
func isBootID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, c := range []byte(text) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && !strings.ContainsRune("0123456789abcdef", rune(c)) {
			return false
		}
	}
	return true
}
