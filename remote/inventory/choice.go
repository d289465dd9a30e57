package inventory

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/hostpattern"
)

// choice is the hosts that are meant, in the order in which they were named.
type choice struct {
	picks []pick
	index map[string]int // of picks, by folded name
}

// pick is a host that is meant, with what was written beside its name.
type pick struct {
	name  string
	user  string
	port  int
	place string
}

// choose finds the hosts that the words mean; without words, all of the fleet.
func choose(words []source, f *fleet) (*choice, error) {
	c := &choice{index: map[string]int{}}
	if len(words) == 0 {
		for _, name := range f.names() {
			c.index[hostpattern.Fold(name)] = len(c.picks)
			c.picks = append(c.picks, pick{name: name})
		}
	}
	for _, word := range words {
		if err := c.add(word, f); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// add adds the hosts of a word: a group or a target.
func (c *choice) add(word source, f *fleet) error {
	picks, err := expandWord(word, f)
	if err != nil {
		return usagef("%s: %w", word.place, err)
	}
	for _, p := range picks {
		if host, ok := f.host(p.name); ok {
			p.name = host.Name // as the file writes it
		} else if f.strict {
			return usagef("%s: host %s is not in %s; %s", word.place, p.name, f.in(), hint(p.name, f.names(), "add it there, or correct the name"))
		}
		if err := c.merge(p); err != nil {
			return err
		}
	}
	return nil
}

// expandWord is the hosts of a group or a target.
func expandWord(word source, f *fleet) ([]pick, error) {
	var t target
	var names []string
	var err error
	if group, ok := strings.CutPrefix(word.text, "@"); ok {
		if names, err = f.members(group); err != nil {
			return nil, fmt.Errorf("group @%s: %w", group, err)
		}
	} else {
		if t, err = parseTarget(word.text); err != nil {
			return nil, err
		}
		names = t.pattern.Expand()
	}
	picks := make([]pick, len(names))
	for i, name := range names {
		picks[i] = pick{name: name, user: t.user, port: t.port, place: word.place}
	}
	return picks, nil
}

// merge adds a host, or what was written beside it to the one that is there.
// Two users or ports are an error: one of the two would silently be left out.
func (c *choice) merge(p pick) error {
	key := hostpattern.Fold(p.name)
	i, ok := c.index[key]
	if !ok {
		if len(c.picks) == MaxHosts {
			return usagef("%s: that makes more than %d hosts; write a smaller range", p.place, MaxHosts)
		}
		c.index[key] = len(c.picks)
		c.picks = append(c.picks, p)
		return nil
	}
	old := &c.picks[i]
	if old.user != "" && p.user != "" && old.user != p.user {
		return usagef("%s: host %s is named with the users %s and %s; name it once", p.place, p.name, old.user, p.user)
	}
	if old.port != 0 && p.port != 0 && old.port != p.port {
		return usagef("%s: host %s is named with the ports %d and %d; for two machines give each a name and `address:` in hosts.yaml", p.place, p.name, old.port, p.port)
	}
	old.user, old.port = cmp.Or(old.user, p.user), cmp.Or(old.port, p.port)
	return nil
}

// exclude is the choice without the hosts of -x.
func exclude(c *choice, values []string, f *fleet) (*choice, error) {
	out := map[string]bool{}
	for _, word := range splitAll(values, "-x") {
		picks, err := expandWord(word, f)
		if err != nil {
			return nil, usagef("-x: %w", err)
		}
		known := strings.HasPrefix(word.text, "@")
		for _, p := range picks {
			key := hostpattern.Fold(p.name)
			_, chosen := c.index[key]
			_, listed := f.index[key]
			known = known || chosen || listed
			out[key] = true
		}
		if !known {
			return nil, usagef("-x: %s is none of the hosts that are named; %s", word.text, hint(word.text, c.names(), "correct it, or leave it out"))
		}
	}
	left := &choice{}
	for _, p := range c.picks {
		if !out[hostpattern.Fold(p.name)] {
			left.picks = append(left.picks, p)
		}
	}
	if len(left.picks) == 0 {
		return nil, usagef("-x: no host is left; exclude fewer")
	}
	return left, nil
}

func (c *choice) names() []string {
	names := make([]string, len(c.picks))
	for i, p := range c.picks {
		names[i] = p.name
	}
	return names
}

// hosts are the chosen hosts with their settings: what was written beside the
// name over -l, and -l over the file.
func (c *choice) hosts(f *fleet, user string) []remote.Host {
	hosts := make([]remote.Host, len(c.picks))
	for i, p := range c.picks {
		host, ok := f.host(p.name)
		if !ok {
			host = remote.Host{Name: p.name}
		}
		host.User = cmp.Or(p.user, user, host.User)
		host.Port = cmp.Or(p.port, host.Port)
		hosts[i] = host
	}
	return hosts
}
