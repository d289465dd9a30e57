package policy

import (
	"slices"

	"github.com/seed-3119e985/genv/enforce"
)

// Resolve returns what applies to a host, a user and a time: each setting from
// the most specific place that has it, with that place. A part of the query that is
// empty selects nothing: without a User, overrides for users do not apply.
// Exemptions are separate; see File.Exemptions.
func (f *File) Resolve(q enforce.Query) Settings {
	var layers []layer
	for i := range f.Overrides {
		if rank, ok := f.Overrides[i].matches(q); ok {
			layers = append(layers, layer{rank, &f.Overrides[i].Set})
		}
	}
	slices.SortStableFunc(layers, func(a, b layer) int { return a.rank.compare(b.rank) })
	result := f.Defaults
	for _, l := range layers {
		result.merge(l.set)
	}
	if f.Flags != (Settings{}) {
		result.merge(&f.Flags)
	}
	if own, ok := f.UserFlags[q.User]; ok {
		result.merge(&own)
	}
	return result
}

// merge takes over what is set in other settings.
func (s *Settings) merge(from *Settings) {
	for _, field := range fields {
		field.merge(s, from)
	}
}

// layer is the settings of an override that matches.
type layer struct {
	rank rank
	set  *Settings
}
