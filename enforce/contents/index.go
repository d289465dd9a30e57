package contents

// Index has a value for each of some keys of a host: devices, environments or users. A few are
// looked through, which is faster than a map, and many are indexed. The zero Index is empty.
type Index[K comparable, V any] struct {
	list []valueOf[K, V]
	many map[K]V // all, once they are more than a few
}

type valueOf[K comparable, V any] struct {
	key   K
	value V
}

// NewIndex returns an empty Index with room for n values.
func NewIndex[K comparable, V any](n int) (x Index[K, V]) {
	if n <= few {
		x.list = make([]valueOf[K, V], 0, n)
	} else {
		x.many = make(map[K]V, n)
	}
	return x
}

// Get is the value of a key; the zero V if it has none.
func (x *Index[K, V]) Get(key K) (value V) {
	if x.many != nil {
		return x.many[key]
	}
	if i := x.find(key); i >= 0 {
		value = x.list[i].value
	}
	return value
}

func (x *Index[K, V]) find(key K) int {
	for i := range x.list {
		if x.list[i].key == key {
			return i
		}
	}
	return -1
}

// Set gives a key a value, instead of the one that it has.
func (x *Index[K, V]) Set(key K, value V) {
	if x.many == nil {
		if i := x.find(key); i >= 0 {
			x.list[i].value = value
			return
		}
	}
	x.Add(key, value)
}

// Add is Set for a key that has no value.
func (x *Index[K, V]) Add(key K, value V) {
	switch {
	case x.many != nil:
		x.many[key] = value
	case len(x.list) < few:
		x.list = append(x.list, valueOf[K, V]{key, value})
	default:
		x.many = map[K]V{key: value}
		for _, v := range x.list {
			x.many[v.key] = v.value
		}
	}
}

// Clear removes all of them.
func (x *Index[K, V]) Clear() {
	clear(x.list)
	x.list, x.many = x.list[:0], nil
}
