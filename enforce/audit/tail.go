package audit

// Tail lists the actions of a log as History does, and then those that follow. Close it.
type Tail struct {
	*Follower
	joiner joiner
	filter Filter
	began  bool
}

// NewTail follows the log with a path, which may not exist yet.
func NewTail(path string, filter Filter) *Tail {
	return &Tail{Follower: NewFollower(path), joiner: newJoiner(), filter: filter}
}

// Entries returns first all that the log has, and then what is new since the last call:
// items of reports as soon as their outcome is known.
func (t *Tail) Entries() ([]Entry, Damage, error) {
	damage, err := t.Next(func(r *Record) { t.joiner.add(r, &t.filter) })
	entries := t.joiner.take(!t.began)
	t.began = t.began || err == nil
	return entries, damage, err
}
