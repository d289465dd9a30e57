package kernel

// WithMajor guards the devices of another driver: one that this machine has.
func WithMajor(o Location, major int) Location {
	o.major = int32(major)
	return o
}
