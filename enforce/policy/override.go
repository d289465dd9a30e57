package policy

import (
	"maps"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Override is settings for some hosts, users and times. All that it names must
// match: one of the hosts, every label, one of the users, and the schedule.
type Override struct {
	Hosts  []text.HostPattern // none for every host
	Labels map[string]string
	// Users are named one by one, Members by their groups. If both are empty, it is
	// every user.
	Users   []string
	Members []string
	When    *Schedule // nil for always
	Set     Settings
	Place   strictyaml.Place

	// The hosts and users as they are written in the file.
	writtenHosts, writtenUsers []string
}

// matches says whether the override applies to a query, and how specific it is.
func (o *Override) matches(q enforce.Query) (rank, bool) {
	var r rank
	if len(o.Users)+len(o.Members) > 0 {
		if r[0] = o.userRank(string(q.User)); r[0] == 0 {
			return rank{}, false
		}
	}
	if len(o.Hosts) > 0 {
		if r[1] = o.hostRank(string(q.Host)); r[1] == 0 {
			return rank{}, false
		}
	}
	for key, value := range o.Labels {
		if has, ok := q.Labels[key]; !ok || has != value {
			return rank{}, false
		}
	}
	r[2] = len(o.Labels)
	if o.When != nil {
		if !o.When.Contains(q.At) {
			return rank{}, false
		}
		r[3] = 1
	}
	return r, true
}

// userRank is 2 for a user by name, 1 for a member of a group, 0 for neither.
func (o *Override) userRank(user string) int {
	switch {
	case slices.Contains(o.Users, user):
		return 2
	case slices.Contains(o.Members, user):
		return 1
	}
	return 0
}

// hostRank is 2 for a name, 1 for a pattern with ranges, 0 for neither.
func (o *Override) hostRank(host string) int {
	best := 0
	for _, p := range o.Hosts {
		switch {
		case !p.Matches(host):
		case p.Count() == 1:
			return 2
		default:
			best = 1
		}
	}
	return best
}

// overlap is the first minute of the week at which two overrides with schedules apply to the same host and user and are
// equally specific, and a setting that both have.
func (o *Override) overlap(other *Override) (minute int, key string, found bool) {
	users := func(o *Override) []string { return slices.Concat(o.Users, o.Members) }
	hosts := func(o *Override) (names []string) {
		for _, p := range o.Hosts {
			names = append(names, p.Expand()...)
		}
		return names
	}
	if o.When == nil || other.When == nil || !maps.Equal(o.Labels, other.Labels) ||
		!alike(users(o), users(other), o.userRank, other.userRank) ||
		!alike(hosts(o), hosts(other), o.hostRank, other.hostRank) {
		return 0, "", false
	}
	at := slices.IndexFunc(keys(), func(k enforce.Setting) bool { return o.Set.has(k.Key) && other.Set.has(k.Key) })
	if minute, found = o.When.common(other.When); !found || at < 0 {
		return 0, "", false
	}
	return minute, keys()[at].Key, true
}

// alike says whether two overrides select one of their names by the same rank. Without names they select all.
func alike(names, others []string, rank, otherRank func(string) int) bool {
	if len(names) == 0 || len(others) == 0 {
		return len(names) == len(others)
	}
	return slices.ContainsFunc(names, func(n string) bool { return rank(n) == otherRank(n) })
}

// String describes what the override is for.
func (o *Override) String() string {
	var parts []string
	add := func(name string, words ...string) {
		if len(words) > 0 {
			parts = append(parts, name+" "+strings.Join(words, ", "))
		}
	}
	add("users", o.writtenUsers...)
	add("hosts", o.writtenHosts...)
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		labels = append(labels, key+"="+o.Labels[key])
	}
	add("labels", labels...)
	if o.When != nil {
		add("schedule", o.When.Name)
	}
	return "override for " + strings.Join(parts, "; ")
}

// rank is how specific an override is, by user, host, labels and time; the higher one wins.
type rank = [4]int

// Resolve returns what applies to a host, a user and a time: each setting from
// the most specific place that has it, with that place. A part of the query that is
// empty selects nothing: without a User, overrides for users do not apply.
// Exemptions are separate; see File.Exemptions.
func (f *File) Resolve(q enforce.Query) Settings { return f.merged(f.layers(q), q.User) }

// layers are the overrides that match, the most specific one last.
func (f *File) layers(q enforce.Query) []layer {
	var layers []layer
	for i := range f.Overrides {
		if rank, ok := f.Overrides[i].matches(q); ok {
			layers = append(layers, layer{rank, i})
		}
	}
	if len(layers) > 1 {
		slices.SortStableFunc(layers, func(a, b layer) int { return slices.Compare(a.rank[:], b.rank[:]) })
	}
	return layers
}

func (f *File) merged(layers []layer, user snapshot.Username) Settings {
	result := f.Defaults
	for _, l := range layers {
		result.merge(&f.Overrides[l.override].Set)
	}
	result.merge(&f.Flags)
	if own, ok := f.UserFlags[user]; ok {
		result.merge(&own)
	}
	return result
}

// layer is an override that matches, by its index.
type layer struct {
	rank     rank
	override int
}

// Explanation is a setting, its value, and where the value comes from.
type Explanation struct {
	Key   string `json:"key"` // as in the file
	Value string `json:"value"`
	From  string `json:"from"` // the place, in words
}

// Explain lists what applies to a host and a user at a time, and why: exemptions first, then the settings, then what
// applies to the whole fleet. The controller knows which GPUs of the host are exempt by an index.
func (f *File) Explain(q enforce.Query, known ...enforce.ExemptGPU) []Explanation {
	q.User = f.Accounts.Name(q.User)
	var list []Explanation
	for _, c := range []candidate{{Subject: enforce.Subject{Host: q.Host}}, {user: q.User}} {
		if what, from := f.exemptions.find(&c); what != "" {
			list = append(list, Explanation{"exempt", what, from.String()})
		}
	}
	indices, from := f.exemptions.indices(q.Host)
	for i, e := range indices {
		gpu := "GPU " + e.Index.String() + ", as of the first good look at the host"
		for _, k := range known {
			if k.Index == e.Index && k.Entry == e.Entry {
				gpu = "GPU " + e.Index.String() + " as it was then: " + string(k.UUID)
			}
		}
		list = append(list, Explanation{"exempt", gpu, from[i].String()})
	}
	settings := f.Resolve(q)
	for _, key := range keys() {
		if settings.has(key.Key) { // a rule may have no warning of its own
			list = append(list, Explanation{key.Key, key.Text(&settings.Settings), settings.From[key.Key].String()})
		}
	}
	for _, c := range f.CapList {
		value := c.String()
		if c.Warn != nil {
			value += ", warn: " + c.Warn.String()
		}
		switch member := c.Member(q.User); {
		case q.Host != "" && !c.onHost(q.Host, q.Labels), q.User != "" && member == enforce.NotMember:
			continue
		case q.User != "" && member == enforce.MembershipUnknown:
			value += " (if the user is in it, which is unknown)"
		}
		if c.when != nil && !c.when.Contains(q.At) {
			value += " (not now)"
		}
		list = append(list, Explanation{"cap " + c.ID, value, Source{c.place, "caps"}.String()})
	}
	if q.User != "" {
		list = append(list, f.explainBooking(q.User)...)
		list = append(list, f.explainUnix(q.User)...)
	}
	for _, key := range slices.Concat(limitSettings, fleetSettings) {
		list = append(list, Explanation{key.Key, key.Text(&f.OfFleet), f.fleetFrom[key.Key].String()})
	}
	return list
}

// explainBooking says what a user may reserve, if the policy says who may.
func (f *File) explainBooking(user snapshot.Username) []Explanation {
	if len(f.reservations) == 0 {
		return nil
	}
	value := "nothing"
	switch rule, known := f.Booking(user); {
	case !known:
		value = "unknown, as the groups of the user are"
	case rule != nil:
		value = rule.String()
	}
	return []Explanation{{"reservations", value, "reservations"}}
}

// explainUnix says what is known of a user in the Unix groups that the policy names.
func (f *File) explainUnix(user snapshot.Username) (list []Explanation) {
	for _, group := range f.UnixGroupNames() {
		value := map[enforce.Membership]string{
			enforce.Member: "member", enforce.NotMember: "not a member", enforce.MembershipUnknown: "unknown",
		}[f.inUnixGroup(string(user), group)]
		list = append(list, Explanation{"group %" + group, value, "accounts of this machine"})
	}
	return list
}

// readOverride reads one item of `overrides:`.
func (r *reader) readOverride(n *strictyaml.Node) {
	o := Override{Place: n.Place()}
	var set *strictyaml.Node
	before := r.doc.Errors()
	failed := func() bool { return r.doc.Errors() > before }
	n.Map(strictyaml.Keys{
		"hosts":  func(n *strictyaml.Node) { r.readHostList(n, &o) },
		"labels": func(n *strictyaml.Node) { o.Labels = r.readLabels(n) },
		"users":  func(n *strictyaml.Node) { r.readUsers(n, &o) },
		"when":   func(n *strictyaml.Node) { o.When = r.readWhen(n) },
		"set":    func(n *strictyaml.Node) { set = n },
	})
	switch {
	case !n.IsMap() || set == nil && failed(): // it may be under a misspelt key
		return
	case set == nil:
		n.Failf("the override sets nothing; add `set:` with the settings that differ")
		return
	case len(o.Hosts)+len(o.Labels)+len(o.Users)+len(o.Members) == 0 && o.When == nil && !failed():
		n.Failf("the override applies to all users and hosts at all times; name hosts, labels, users or " +
			"when, or move it to `defaults:`")
	}
	r.readSettings(set, &o.Set, o.scope(), o.String())
	for i := range r.file.Overrides {
		if minute, key, found := o.overlap(&r.file.Overrides[i]); found && !failed() {
			n.Failf("on %s both schedule %s here and schedule %s at %s set %s for the same hosts and users; write "+
				"hours that do not overlap", clock(minute), o.When.Name, r.file.Overrides[i].When.Name,
				r.file.Overrides[i].Place, key)
		}
	}
	r.file.Overrides = append(r.file.Overrides, o)
}

func (r *reader) readLabels(n *strictyaml.Node) map[string]string {
	labels := map[string]string{}
	n.Each(func(key, value *strictyaml.Node) {
		name, wanted := key.Text(), value.Scalar() // each reports what is wrong with it
		labels[name] = wanted
		r.refers(key, Reference{Kind: ToLabel, Name: name, Value: wanted})
	})
	return labels
}

// scope is what the override selects by, apart from the time.
func (o *Override) scope() enforce.Scope {
	var s enforce.Scope
	if len(o.Hosts)+len(o.Labels) > 0 {
		s |= enforce.ByHost
	}
	if len(o.writtenUsers) > 0 {
		s |= enforce.ByUser
	}
	return s
}

// readUsers reads a list of users and groups into an override.
func (r *reader) readUsers(n *strictyaml.Node, o *Override) {
	n.List(func(item *strictyaml.Node) {
		users, isGroup := r.readUserOrGroup(item)
		if isGroup {
			o.Members = append(o.Members, users...)
		} else {
			o.Users = append(o.Users, users...)
		}
		if isGroup || len(users) > 0 {
			o.writtenUsers = append(o.writtenUsers, item.Text())
		}
	})
}

// readHostList reads a list of host patterns into an override.
func (r *reader) readHostList(n *strictyaml.Node, o *Override) {
	n.List(func(item *strictyaml.Node) {
		if text := item.Text(); text != "" {
			o.Hosts = append(o.Hosts, r.readHosts(item, text))
			o.writtenHosts = append(o.writtenHosts, text)
		}
	})
}
