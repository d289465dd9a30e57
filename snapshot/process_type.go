package snapshot

import (
	"context"
	"slices"
)

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

// OfDesktop says whether a device is used to draw on its screen. Any process can open a graphics
// context, but no user can make a screen active.
func (s *Snapshot) OfDesktop(u DeviceUsage) bool {
	if !u.Type.Draws() {
		return false
	}
	d := s.Device(u.Index)
	return d != nil && d.Display
}

// HasType says whether a use of a process has a type; an empty one isn't known.
func (p *Process) HasType(t ProcessType) bool {
	return slices.ContainsFunc(p.Usage, func(u DeviceUsage) bool { return u.Type == t })
}

type typesKey struct{}

// WithTypes asks for a snapshot with the types of processes. This takes another call of nvidia-smi
// if some are not known.
func WithTypes(ctx context.Context) context.Context { return context.WithValue(ctx, typesKey{}, true) }

// WantsTypes says whether ctx is of WithTypes.
func WantsTypes(ctx context.Context) bool { return ctx.Value(typesKey{}) != nil }
