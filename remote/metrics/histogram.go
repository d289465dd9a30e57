package metrics

import "slices"

// histogram counts values by size.
type histogram struct {
	bounds []float64 // in ascending order; a value equal to one is in its bucket
	counts []uint64  // by bucket, and of what is above the last bound
	sum    float64
}

// newHistogram returns a histogram with these upper bounds of its buckets.
func newHistogram(bounds ...float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// observe counts a value.
func (h *histogram) observe(value float64) {
	at, _ := slices.BinarySearch(h.bounds, value)
	h.counts[at]++
	h.sum += value
}
