package enforce

import (
	"github.com/seed-3119e985/genv/enforce/caps"
	"github.com/seed-3119e985/genv/snapshot"
)

// lostDevice is what a person has of a device that is to go.
type lostDevice struct {
	*caps.HeldDevice
	whole *caps.HeldDevice // as it was chosen
}

// lostBy is what people lose, by their numbers, by devices that were chosen, and by these as other hosts report them.
func lostBy(chosen []*caps.HeldDevice) map[int][]lostDevice {
	lost := make(map[int][]lostDevice)
	for _, whole := range chosen {
		for _, d := range append([]*caps.HeldDevice{whole}, whole.Copies...) {
			for _, part := range d.Whose() {
				lost[part.Owner] = append(lost[part.Owner], lostDevice{part, whole})
			}
		}
	}
	return lost
}

// lose has a finding take environments' devices, and devices.
func (c *capOn) lose(f *Finding, due bool, envs []heldEnv, devices []lostDevice) {
	named := make(map[*snapshot.Process]bool)
	end := func(h *hostView, p *snapshot.Process) { // once
		if !named[p] {
			c.end(f, due, h, p)
		}
		named[p] = true
	}
	for _, e := range envs {
		for _, a := range e.Attachments {
			index := a.Device.Index
			if e.h.sparesUse(e.envView, index) || e.h.hidesOn(e.envView, index) {
				continue
			}
			c.loseDevice(f, due, e.h, e.envView, index)
			for p := range e.On(index) {
				end(e.h, p)
			}
		}
	}
	for _, d := range devices {
		h := hostOf(d.HeldDevice)
		for _, eid := range d.Envs {
			if !d.whole.Stays {
				c.loseDevice(f, due, h, h.envs[eid], d.Index)
			}
		}
		for _, use := range d.Uses {
			end(h, use.Process)
		}
	}
}
