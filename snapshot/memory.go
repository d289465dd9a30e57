package snapshot

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Memory is an amount of memory as people and state files write it: a whole
// number with one of the units b, k, m, g (1000s) or ki, mi, gi (1024s), or
// without a unit for bytes. It keeps the text, so that state that is read and
// written again stays the same to the byte. The zero Memory is "not known" or
// "not given", which is not the same as no bytes.
type Memory struct {
	text  string
	bytes int64
}

var memoryUnits = []struct {
	suffix string
	factor int64
}{ // longest suffix first
	{"ki", 1 << 10},
	{"mi", 1 << 20},
	{"gi", 1 << 30},
	{"b", 1},
	{"k", 1e3},
	{"m", 1e6},
	{"g", 1e9},
}

// ParseMemory reads an amount such as "4g", "81559mi" or "44040192". Upper case
// is taken as its lower case. Its error says which units there are.
func ParseMemory(text string) (Memory, error) {
	lower := strings.ToLower(text)
	digits, factor := lower, int64(1)
	for _, u := range memoryUnits {
		if rest, ok := strings.CutSuffix(lower, u.suffix); ok {
			digits, factor = rest, u.factor
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return Memory{}, fmt.Errorf("%q is no amount of memory: write a whole number with a unit of b, k, m, g, ki, mi or gi, such as 4g", text)
	}
	if int64(n) > math.MaxInt64/factor {
		return Memory{}, fmt.Errorf("%q is more memory than can be counted", text)
	}
	return Memory{text: lower, bytes: int64(n) * factor}, nil
}

// MustMemory is ParseMemory for amounts that are written in the program.
func MustMemory(text string) Memory {
	m, err := ParseMemory(text)
	if err != nil {
		panic(err)
	}
	return m
}

// MiB is an amount of n mebibytes, the unit in which nvidia-smi reports.
func MiB(n int64) Memory {
	return Memory{text: strconv.FormatInt(n, 10) + "mi", bytes: n << 20}
}

// Known says whether there is an amount at all.
func (m Memory) Known() bool { return m.text != "" }

// Bytes is the amount in bytes; ask Known first.
func (m Memory) Bytes() int64 { return m.bytes }

// String is the amount as it was written, or "" when it is not known.
func (m Memory) String() string { return m.text }
