package enforce

// Room counts entries that belong to one of some groups (hosts), and there to one of some
// members (users). Each group, and each member of it, has room for so many.
type Room[G, M comparable] struct {
	Max, MaxEach int // of a group, and of a member of it
	groups       map[G]int
	members      map[memberOf[G, M]]int
}

type memberOf[G, M comparable] struct {
	group  G
	member M
}

// Full reports whether there is no room for another entry.
func (r *Room[G, M]) Full(group G, member M) bool {
	return r.groups[group] >= r.Max || r.members[memberOf[G, M]{group, member}] >= r.MaxEach
}

// Add counts an entry.
func (r *Room[G, M]) Add(group G, member M) {
	if r.groups == nil {
		r.groups, r.members = make(map[G]int), make(map[memberOf[G, M]]int)
	}
	r.groups[group]++
	r.members[memberOf[G, M]{group, member}]++
}
