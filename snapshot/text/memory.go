package text

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// memoryUnits are the units of memory in bytes, the longest suffix first.
var memoryUnits = []struct {
	suffix string
	bytes  int64
}{
	{"ki", 1 << 10},
	{"mi", 1 << 20},
	{"gi", 1 << 30},
	{"b", 1},
	{"k", 1e3},
	{"m", 1e6},
	{"g", 1e9},
}

// ParseMemory reads an amount of memory in bytes: a whole number with one of the
// units b, k, m, g (1000s) or ki, mi, gi (1024s) in lower or upper case, or
// without a unit for bytes. Its error says how to write one.
func ParseMemory(s string) (bytes int64, err error) {
	digits, factor := strings.ToLower(s), int64(1)
	for _, unit := range memoryUnits {
		if rest, ok := strings.CutSuffix(digits, unit.suffix); ok {
			digits, factor = rest, unit.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is not an amount of memory: write a whole number with a unit of b, k, m, g, ki, mi or gi, such as 4g", s)
	}
	if int64(n) > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is more memory than can be counted", s)
	}
	return int64(n) * factor, nil
}

// Megabytes writes an amount of memory in whole units of 1,000,000 bytes, rounded
// down, as genv 1.4.3 does: 4000m.
func Megabytes(bytes int64) string { return fmt.Sprintf("%dm", bytes/1e6) }
