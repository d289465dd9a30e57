package snapshot

import (
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Memory is an amount of memory: a whole number with a unit b, k, m, g (1000s) or ki, mi, gi (1024s), or of bytes. It
// keeps the text, so that state files don't change. The zero Memory is unknown or not given, which is not 0 bytes.
type Memory struct {
	text  string
	bytes int64
}

// ParseMemory reads an amount such as "4g", "81559mi" or "44040192", in lower case.
func ParseMemory(amount string) (Memory, error) {
	bytes, err := text.ParseMemory(amount)
	if err != nil {
		return Memory{}, err
	}
	return Memory{text: strings.ToLower(amount), bytes: bytes}, nil
}

// MustMemory is ParseMemory for constants; it panics on an error.
func MustMemory(amount string) Memory {
	m, err := ParseMemory(amount)
	if err != nil {
		panic(err)
	}
	return m
}

// MiB is an amount of n mebibytes, the unit in which nvidia-smi reports.
func MiB(n int64) Memory {
	return Memory{text: strconv.FormatInt(n, 10) + "mi", bytes: n << 20}
}

// MachineKiB is all memory of a machine, in Linux's unit: the total of a device that shares it, where 1.4.3 needs a
// number.
func MachineKiB(n int64) Memory {
	return Memory{text: strconv.FormatInt(n, 10) + "ki", bytes: n << 10}
}

// OfMachine says whether it is written as MachineKiB does, which nvidia-smi never does.
func (m Memory) OfMachine() bool { return strings.HasSuffix(m.text, "ki") }

// Known says whether the amount is known.
func (m Memory) Known() bool { return m.text != "" }

// Bytes is the amount in bytes, and 0 if it is unknown.
func (m Memory) Bytes() int64 { return m.bytes }

// String is the amount as it was written, or "" if it is unknown.
func (m Memory) String() string { return m.text }

// MarshalText is the amount as it was written; it is empty if it is unknown.
func (m Memory) MarshalText() ([]byte, error) { return []byte(m.text), nil }

// UnmarshalText reads an amount with ParseMemory; the empty text is unknown.
func (m *Memory) UnmarshalText(text []byte) (err error) {
	*m = Memory{}
	if len(text) > 0 {
		*m, err = ParseMemory(string(text))
	}
	return err
}
