package metrics

import "slices"

// Histogram counts values by size.
type Histogram struct {
	bounds []float64 // in ascending order; a value equal to one is in its bucket
	counts []uint64  // by bucket, and of what is above the last bound
	sum    float64
}

// NewHistogram returns a Histogram with these upper bounds of its buckets.
func NewHistogram(bounds ...float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// Observe counts a value.
func (h *Histogram) Observe(value float64) {
	at, _ := slices.BinarySearch(h.bounds, value)
	h.counts[at]++
	h.sum += value
}
