package holdings

import (
	"errors"
	"fmt"
	"slices"
)

// ErrInvalid is what makes holdings or a decision unusable: they are as if missing.
var ErrInvalid = errors.New("invalid holdings")

// Check returns ErrInvalid for holdings that Decide can't use. All that another controller wrote is
// to be checked.
func (s *Shard) Check() error {
	if err := s.check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

const (
	// maxBytes is more memory than any device has: 16 TiB.
	maxBytes = 1 << 44
	// maxUserBytes is more than a user holds in one shard, and maxAmount more than in all of them:
	// sums and differences of such amounts don't overflow.
	maxUserBytes = 1 << 54
	maxAmount    = 1 << 60
)

func (s *Shard) check() error {
	if s.Missing < 0 || s.Missing > 1<<24 {
		return errors.New("a negative or huge number of hosts")
	}
	for i := range s.Processes {
		if !isIndex(s.Processes[i].Host, len(s.Hosts)) {
			return fmt.Errorf("process %d: host index out of range", i)
		}
	}
	users := make(map[string]bool, len(s.Users))
	for i := range s.Users {
		u := &s.Users[i]
		if users[string(u.Name)] {
			return fmt.Errorf("user %q is listed twice", u.Name)
		}
		users[string(u.Name)] = true
		if err := u.check(s); err != nil {
			return fmt.Errorf("user %q: %w", u.Name, err)
		}
	}
	return nil
}

func (u *User) check(s *Shard) error {
	if !isIndex(u.First, len(s.Hosts)) || u.Hosts < 0 || u.Hosts > len(s.Hosts) {
		return errors.New("host index or number of hosts out of range")
	}
	for i := range u.Envs {
		if err := u.Envs[i].check(s); err != nil {
			return fmt.Errorf("environment %q: %w", u.Envs[i].EID, err)
		}
	}
	total := int64(0)
	for i, d := range u.Devices {
		if err := d.check(s); err != nil {
			return fmt.Errorf("device %d of the list: %w", i, err)
		}
		if total += max(0, d.Bytes, d.Used); total > maxUserBytes {
			return errors.New("an impossible amount of memory")
		}
	}
	return nil
}

func (e *Env) check(s *Shard) error {
	if !isIndex(e.Host, len(s.Hosts)) {
		return errors.New("host index out of range")
	}
	for _, loss := range e.Loses {
		for _, p := range loss.Processes {
			if !isIndex(p, len(s.Processes)) {
				return errors.New("process index out of range")
			}
		}
	}
	return nil
}

func (d *Device) check(s *Shard) error {
	if d == nil || !isIndex(d.Host, len(s.Hosts)) {
		return errors.New("host index out of range")
	}
	for _, use := range d.Processes {
		if !isIndex(use.Process, len(s.Processes)) {
			return errors.New("process index out of range")
		}
	}
	if min(d.Bytes, d.Used) < UnknownBytes || max(d.Bytes, d.Used) > maxBytes {
		return errors.New("an impossible amount of memory")
	}
	return nil
}

func isIndex(i, length int) bool { return i >= 0 && i < length }

func areAmounts(all ...int64) bool { return slices.Min(all) >= 0 && slices.Max(all) <= maxAmount }

// Check returns ErrInvalid for what no Decide returns. What a decision takes is looked up before
// it is taken, so there is little that one may not say.
func (d *Decision) Check() error {
	for i := range d.Over {
		o := &d.Over[i]
		if o.Cap < Envs || o.Cap > Memory || !areAmounts(o.Limit, o.FreedElsewhere, o.Elsewhere.Bytes, int64(o.Elsewhere.Count), int64(o.Elsewhere.Hosts)) {
			return fmt.Errorf("%w: user %q is over cap %d", ErrInvalid, o.User, o.Cap)
		}
	}
	return nil
}
