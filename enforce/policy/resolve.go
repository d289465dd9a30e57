package policy

import (
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// Resolve returns what applies to a host, a user and a time: each setting from
// the most specific place that has it, with that place. A part of the query that is
// empty selects nothing: without a User, overrides for users do not apply.
// Exemptions are separate; see File.Exemptions.
func (f *File) Resolve(q enforce.Query) Settings { return f.merged(f.layers(q), q.User) }

// layers are the overrides that match, the most specific one last.
func (f *File) layers(q enforce.Query) []layer {
	var layers []layer
	for i := range f.Overrides {
		if rank, ok := f.Overrides[i].matches(q); ok {
			layers = append(layers, layer{rank, i})
		}
	}
	if len(layers) > 1 {
		slices.SortStableFunc(layers, func(a, b layer) int { return a.rank.compare(b.rank) })
	}
	return layers
}

func (f *File) merged(layers []layer, user snapshot.Username) Settings {
	result := f.Defaults
	for _, l := range layers {
		result.merge(&f.Overrides[l.override].Set)
	}
	if f.Flags != (Settings{}) {
		result.merge(&f.Flags)
	}
	if own, ok := f.UserFlags[user]; ok {
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

// layer is an override that matches, by its index.
type layer struct {
	rank     rank
	override int
}
