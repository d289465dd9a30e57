package contents

// Slab makes many values at once, which is faster than one by one. The zero Slab is ready.
type Slab[T any] struct{ free []T }

// Next is a new zero value.
func (s *Slab[T]) Next() *T { return &s.Take(1)[0] }

// Take are n new zero values. Appending to them makes a copy.
func (s *Slab[T]) Take(n int) []T {
	if len(s.free) < n {
		s.free = make([]T, max(n, 1024))
	}
	taken := s.free[:n:n]
	s.free = s.free[n:]
	return taken
}

// Firsts are empty lists with room for one item each, made as by a Slab.
type Firsts[T any] struct{ slab Slab[T] }

// Next is a new list.
func (f *Firsts[T]) Next() []T { return f.slab.Take(1)[:0] }
