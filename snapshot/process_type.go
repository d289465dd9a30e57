package snapshot

// ProcessType says what a process uses a device for.
type ProcessType string

// The types, as `nvidia-smi -q` names them.
const (
	TypeCompute         ProcessType = "C"
	TypeGraphics        ProcessType = "G"
	TypeComputeGraphics ProcessType = "C+G"
	// TypePending says that nvidia-smi has not answered yet.
	TypePending ProcessType = "?"
)

// Draws says whether it is the type of a process that draws.
func (t ProcessType) Draws() bool { return t == TypeGraphics || t == TypeComputeGraphics }

// OfDesktop says whether a device is used to draw on its display. Any process can open a graphics
// context, but no user can make a display active.
func (s *Snapshot) OfDesktop(u DeviceUsage) bool { return u.Type.Draws() && s.displays(u) }

// TypeUnknown says whether a use may be OfDesktop, since its type isn't known.
func (s *Snapshot) TypeUnknown(u DeviceUsage) bool {
	return u.Type == TypePending || u.Type == "" && s.displays(u)
}

func (s *Snapshot) displays(u DeviceUsage) bool {
	d := s.Device(u.Index)
	return d != nil && d.Display != nil && *d.Display
}
