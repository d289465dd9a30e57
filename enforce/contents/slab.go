package contents

// Slab makes many values at once, which is faster than one by one. The zero Slab is ready.
type Slab[T any] struct{ free []T }

// Next is a new zero value.
func (s *Slab[T]) Next() *T {
	if len(s.free) == 0 {
		s.free = make([]T, 1024)
	}
	one := &s.free[0]
	s.free = s.free[1:]
	return one
}

// Firsts are empty lists with room for one item each, made as by a Slab.
type Firsts[T any] struct{ free []T }

// Next is a new list.
func (f *Firsts[T]) Next() []T {
	if len(f.free) == 0 {
		f.free = make([]T, 1024)
	}
	list := f.free[:0:1]
	f.free = f.free[1:]
	return list
}
