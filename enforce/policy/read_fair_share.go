package policy

import (
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/fairshare"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// freeUnlessSaid is how much of a fleet must be free for a boost, in per cent.
const freeUnlessSaid = 25

// readFairShare reads `fair-share:`. It comes after `defaults:`.
func (r *reader) readFairShare(n *strictyaml.Node) {
	from := Source{n.Place(), "the file"}
	r.file.FairShare = Value[fairshare.Setting]{From: from}
	if n.IsBool() {
		if n.Bool() {
			n.Failf("fair-share: true does not say how much; write {boost: 2}, or false for none")
		}
		return
	}
	s := fairshare.Setting{Free: freeUnlessSaid}
	n.Map(strictyaml.Keys{
		"boost": func(n *strictyaml.Node) { s.Boost = n.Int(1, maxCap) },
		"free": func(n *strictyaml.Node) {
			if s.Free = readPercent(n); s.Free == 0 {
				n.Failf("free: a fleet of which nothing is free is not free; write a percentage such as %d%%", freeUnlessSaid)
			}
		},
	})
	switch {
	case !n.IsMap() || r.failed():
		return
	case s.Boost == 0:
		n.Failf("fair-share: it does not say how many devices more; write {boost: 2}")
	case r.file.Defaults.Warn.Value == enforce.Warn{}:
		n.Failf("fair-share: when the fleet is full again, users are over their caps through no fault of theirs; write `warn: {for: 2h}` under `defaults:`, so that they have time")
	}
	r.file.FairShare = Value[fairshare.Setting]{On: true, Value: s, From: from}
}
