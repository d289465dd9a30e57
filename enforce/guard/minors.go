package guard

import "math/bits"

// LastGPU is the highest minor number of major 195 that can be a GPU: 254 is
// nvidia-modeset, 255 is nvidiactl.
const LastGPU = 253

// Minors is a set of minor numbers of NVIDIA devices, 0 to 255.
type Minors [4]uint64

// AllMinors are all that a GPU can have.
func AllMinors() (m Minors) {
	for minor := range LastGPU + 1 {
		m.Add(minor)
	}
	return m
}

// MinorsOf is the set of these minors; what can't be a GPU's is left out.
func MinorsOf(minors ...int) (m Minors) {
	for _, minor := range minors {
		m.Add(minor)
	}
	return m
}

// Add puts a minor into the set. A number that can't be a GPU's is left out, since its
// node may not be denied.
func (m *Minors) Add(minor int) {
	if minor >= 0 && minor <= LastGPU {
		m[minor/64] |= 1 << (minor % 64)
	}
}

// Has says whether the minor is in the set.
func (m Minors) Has(minor int) bool {
	return minor >= 0 && minor < 256 && m[minor/64]&(1<<(minor%64)) != 0
}

// Or is the set of the minors that are in m or in other.
func (m Minors) Or(other Minors) Minors {
	for i := range m {
		m[i] |= other[i]
	}
	return m
}

// Len is how many minors are in the set.
func (m Minors) Len() (n int) {
	for _, word := range m {
		n += bits.OnesCount64(word)
	}
	return n
}

// List is the minors of the set, ascending.
func (m Minors) List() []int {
	var list []int
	for minor := range 256 {
		if m.Has(minor) {
			list = append(list, minor)
		}
	}
	return list
}
