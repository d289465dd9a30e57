package policy

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
)

var _ enforce.Policy = (*File)(nil)

// Settings implements enforce.Policy. It merges once: a large fleet asks 50,000 times a cycle.
func (f *File) Settings(q enforce.Query) *enforce.Settings {
	q.User = f.Accounts.Name(q.User)
	layers := f.layers(q)
	var room [64]byte
	key := f.keyOf(room[:0], q.User, layers)
	f.mu.RLock()
	settings, known := f.settings[string(key)]
	f.mu.RUnlock()
	if known {
		return settings
	}
	merged := f.merged(layers, q.User)
	settings = &merged.Settings
	if mode := settings.Guard.Mode; q.User == "" { // it is a host's
		settings.Guard = f.exemptions.guard(mode, f.Accounts)
	} else {
		settings.Guard = guard.PolicySetting{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.settings == nil {
		f.settings = make(map[string]*enforce.Settings)
	}
	f.settings[string(key)] = settings
	return settings
}

// keyOf appends what determines the settings of a user or, for "", a host.
func (f *File) keyOf(key []byte, user snapshot.Username, layers []layer) []byte {
	_, own := f.UserFlags[user]
	switch {
	case own:
		key = append(append(append(key, 'f'), user...), 0)
	case user == "":
		key = append(key, 'h')
	default:
		key = append(key, 'u')
	}
	for _, l := range layers {
		key = binary.AppendUvarint(key, uint64(l.override)) //nolint:gosec // an index is not negative
	}
	return key
}

// guard is a mode of the kernel guard with the exempt users.
func (e *exemptions) guard(m guard.Mode, accounts Aliases) guard.PolicySetting {
	if m == guard.Off {
		return guard.PolicySetting{}
	}
	users := slices.Collect(maps.Keys(e.users))
	for other, name := range accounts { // a host may know the user by that one alone
		if _, exempt := e.users[name]; exempt {
			users = append(users, other)
		}
	}
	slices.Sort(users)
	return guard.PolicySetting{Mode: m, ExemptUsers: users, ExemptUIDs: slices.Sorted(maps.Keys(e.uids))}
}

// Account implements enforce.Policy.
func (f *File) Account(user snapshot.Username) snapshot.Username { return f.Accounts.Name(user) }

// Fleet implements enforce.Policy.
func (f *File) Fleet() enforce.Fleet {
	fleet := f.OfFleet
	fleet.NotifyUsers = fleet.NotifyUsers || f.Mail != nil
	return fleet
}

// Names implements enforce.Policy, for a user and the groups of the file with the user.
func (f *File) Names(user snapshot.Username) bool {
	is := func(e entry) bool { return e.users[string(user)] }
	overrides := func(o Override) bool { return o.users[string(user)] > 0 }
	return slices.ContainsFunc(f.overrides, overrides) || slices.ContainsFunc(f.CapList, func(c *Cap) bool {
		return slices.ContainsFunc(slices.Concat(c.users.entries, c.by), is)
	})
}

// Exempt implements enforce.Policy. The reason is what is exempt, and the place in the file. Users and uids are exempt
// by the uid that the kernel reports for a process or, if 1.4.3 reports none, by the owner of the environment. A
// process in a container belongs to the user who provably started it. For devices by index see ExemptIndices.
func (f *File) Exempt(s enforce.Subject) (reason string, exempt bool) {
	user, uid, env := ownerOf(s)
	s.User, s.Environment = f.Accounts.Name(user), env
	what, from := f.exemptions.find(s, uid)
	if what == "" {
		return "", false
	}
	return what + ": " + from.String(), true
}

// ExemptIndices implements enforce.Policy.
func (f *File) ExemptIndices(host snapshot.Hostname) []enforce.ExemptGPU {
	list, _ := f.exemptions.indices(host)
	return list
}

// ownerOf is a subject's owner, as far as it can be believed. The environment is nil if it is another user's. Without a
// process, and without reported uids, it is what state files claim.
func ownerOf(s enforce.Subject) (user snapshot.Username, uid *snapshot.UID, env *snapshot.Environment) {
	p := s.Process
	switch {
	case p == nil:
		return s.User, nil, s.Environment
	case p.StartedByUnknown():
		return "", nil, nil // any user who may start containers can be any user in one
	case p.UID == nil:
		user, _ = p.Account(s.Environment)
		return user, nil, s.Environment
	}
	user, uid = p.Account(s.Environment)
	if s.Environment != nil && s.Environment.UID == *uid {
		env = s.Environment
	}
	if user == "" && *uid == 0 {
		user = "root"
	}
	return user, uid, env
}
