package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// withExemptions is a policy with exemptions. As in a file, a process belongs to the user that the kernel reports. An
// environment isn't exempt by its owner, which is a claim; but no attachment of an exempt owner is idle or too old.
type withExemptions struct {
	enforce.Policy
	at map[Who][]*Exemption // by host and user; one that is empty is any
	// users is an exemption of some user from all rules, by host: a user of unknown name may be that one.
	users map[snapshot.Hostname]*Exemption
}

// places are the keys of the exemptions that concern a user on a host.
func places(host snapshot.Hostname, user snapshot.Username) [3]Who {
	return [3]Who{{Host: host}, {Host: host, User: user}, {User: user}}
}

// WithExemptions returns a policy with the exemptions of a list that apply at a time.
func WithExemptions(policy enforce.Policy, list ExemptionList, now time.Time) enforce.Policy {
	p := withExemptions{policy, make(map[Who][]*Exemption), make(map[snapshot.Hostname]*Exemption)}
	for i := range list {
		e := &list[i]
		if e.ended(now) || !e.Begun(now) || e.Who.Check() != nil {
			continue
		}
		at := Who{Host: e.Host, User: policy.Account(e.User)}
		p.at[at] = append(p.at[at], e)
		if e.User != "" && e.Rule == "" {
			p.users[e.Host] = e
		}
	}
	return p
}

func (p withExemptions) Exempt(s enforce.Subject) (reason string, exempt bool) {
	if reason, exempt = p.Policy.Exempt(s); exempt {
		return reason, true
	}
	if s.Process != nil && s.Process.UserUnknown {
		if e := cmp.Or(p.users[s.Host], p.users[""]); e != nil {
			return e.String(), true
		}
	}
	user, uid, _ := ownerOf(s)
	for _, at := range places(s.Host, p.Account(gpus.UserName(user, uid))) {
		for _, e := range p.at[at] {
			if e.Rule == "" && (e.Device == nil || s.Device != nil && e.IsOf(s.Device.Index, s.Device.UUID)) {
				return e.String(), true
			}
		}
	}
	return "", false
}

// Settings implements enforce.Policy: what is exempt is off.
func (p withExemptions) Settings(q enforce.Query) *enforce.Settings {
	shared := p.Policy.Settings(q)
	s, changed := *shared, false
	for _, at := range places(q.Host, p.Account(q.User)) {
		for _, e := range p.at[at] {
			if e.Device == nil {
				e.turnOff(&s)
				changed = true
			}
		}
	}
	if s.Guard.Mode != guard.Off {
		s.Guard.ExemptUsers = append(slices.Clip(s.Guard.ExemptUsers), p.usersOn(q.Host)...)
		changed = true
	}
	if !changed {
		return shared
	}
	return &s
}

// Caps implements enforce.Policy: caps don't cover exempt people, and count nothing on exempt hosts.
func (p withExemptions) Caps(at time.Time) []*enforce.Cap {
	list := p.Policy.Caps(at)
	for _, c := range list {
		exempt := func(who Who) bool {
			return slices.ContainsFunc(p.at[who], func(e *Exemption) bool {
				return e.Rule == enforce.RuleCaps || e.Rule == enforce.Rule(c.ID)
			})
		}
		member, onHost := c.Member, c.OnHost
		c.Member = func(user snapshot.Username) enforce.Membership {
			if exempt(Who{User: p.Account(user)}) {
				return enforce.NotMember
			}
			return member(user)
		}
		c.OnHost = func(host snapshot.Hostname, labels map[string]string) bool {
			return !exempt(Who{Host: host}) && onHost(host, labels)
		}
	}
	return list
}

func (p withExemptions) usersOn(host snapshot.Hostname) (users []snapshot.Username) {
	for at, list := range p.at {
		if at.User != "" && (at.Host == "" || at.Host == host) &&
			slices.ContainsFunc(list, func(e *Exemption) bool { return e.Rule == "" }) {
			users = append(users, at.User)
		}
	}
	slices.Sort(users)
	return slices.Compact(users)
}

// turnOff turns off the rules of an exemption that can differ by user: a user's processes are exempt by themselves.
func (e *Exemption) turnOff(s *enforce.Settings) {
	for _, rule := range enforce.Rules() {
		setting, _ := rule.Setting()
		if (e.Rule == "" || e.Rule == rule) && (e.User == "" || setting.By(enforce.ByUser)) {
			setting.Copy(s, &enforce.Settings{})
		}
	}
	if e.User == "" && e.Rule == "" {
		s.Guard = guard.PolicySetting{}
	}
}
