package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// Digest is the same for files and flags by which the same is enforced: comments, places,
// the names of groups and schedules, hooks and messages make no difference, nor does it
// whether a setting is in `defaults:` or a flag.
func (f *File) Digest() string {
	sum := sha256.Sum256([]byte(strings.Join(f.canonical(), "\n")))
	return hex.EncodeToString(sum[:16])
}

// canonical is what is enforced, as lines.
func (f *File) canonical() []string {
	defaults := f.Defaults
	defaults.merge(&f.Flags)
	lines := []string{defaults.canonical(nil)}
	for i := range f.Overrides {
		o := &f.Overrides[i]
		if set := o.Set.canonical(&f.Flags); set != "" { // flags take precedence
			lines = append(lines, o.canonical()+set)
		}
	}
	for _, user := range slices.Sorted(maps.Keys(f.UserFlags)) {
		own := f.UserFlags[user]
		lines = append(lines, fmt.Sprintf("user %q %s", user, own.canonical(&Settings{})))
	}
	for _, limit := range f.Limits.each() {
		lines = append(lines, fmt.Sprintf("%s %t %d", limit.key, limit.at.On, limit.at.Value))
	}
	lines = append(lines, fmt.Sprintf("%t %s", f.Limits.Throttle.On, f.Unreachable.Value))
	lines = append(lines, slices.Sorted(slices.Values(f.Unprotected))...)
	return append(lines, f.Exemptions.canonical()...)
}

// canonical lists the settings that are set and that flags don't replace; all of them if
// flags is nil.
func (s *Settings) canonical(flags *Settings) string {
	exact := s.Settings
	if exact.MaxMemory != nil { // 80g is 80000m
		if bytes, err := snapshot.ParseMemory(strconv.FormatInt(exact.MaxMemory.Bytes(), 10)); err == nil {
			exact.MaxMemory = &bytes
		}
	}
	var b strings.Builder
	for _, key := range keys {
		text := key.Text(&exact)
		if text != "" && (flags == nil || s.has(key.Key) && !flags.has(key.Key)) {
			fmt.Fprintf(&b, "%s=%s;", key.Key, text)
		}
	}
	return b.String()
}

// canonical is what the override is for.
func (o *Override) canonical() string {
	var hosts []string
	for _, h := range o.Hosts {
		hosts = append(hosts, h.String())
	}
	slices.Sort(hosts)
	labels := make([]string, 0, len(o.Labels))
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		labels = append(labels, key+"="+o.Labels[key])
	}
	when := ""
	if o.When != nil {
		when = fmt.Sprintf("%s %v", o.When.zone, o.When.spans)
	}
	return fmt.Sprintf("%q %q %q %q %q ", hosts, labels, slices.Sorted(slices.Values(o.Users)), slices.Sorted(slices.Values(o.Members)), when)
}

// canonical lists the exemptions, sorted.
func (e *Exemptions) canonical() []string {
	var lines []string
	for user := range e.users {
		lines = append(lines, fmt.Sprintf("exempt user %q", user))
	}
	for uid := range e.uids {
		lines = append(lines, fmt.Sprintf("exempt uid %d", uid))
	}
	for uuid := range e.uuids {
		lines = append(lines, fmt.Sprintf("exempt uuid %q", uuid))
	}
	for kind, entries := range map[string][]exemptEntry{"process": e.processes, "environment": e.environments, "host": e.hosts, "device": e.devices} {
		for i := range entries {
			x := &entries[i]
			lines = append(lines, fmt.Sprintf("exempt %s %q %q %q %q %q", kind, x.name, x.user, x.host, x.index, x.eid))
		}
	}
	for i := range e.containers {
		lines = append(lines, e.containers[i].canonical())
	}
	slices.Sort(lines)
	return lines
}
