package proc

import (
	"fmt"
	"os"
	"path/filepath"
)

// MemTotal is the memory of the machine in KiB, according to /proc/meminfo.
func (fs FS) MemTotal() (kib int64, err error) {
	file, err := os.Open(filepath.Join(fs.root(), "meminfo"))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if _, err := fmt.Fscanf(file, "MemTotal: %d kB\n", &kib); err != nil || kib <= 0 { // its first line
		return 0, fmt.Errorf("%s: the first line is not MemTotal", file.Name())
	}
	return kib, nil
}
