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

// Override is settings for some hosts, users and times. All that it names must match: one of the hosts, every label,
// one of the users, the schedule.
type Override struct {
	hosts  []text.HostPattern // none for every host
	labels map[string]string
	users  map[string]int // their ranks: 2 of those by name, 1 of members of groups
	when   *Schedule      // nil for always
	set    Settings
	place  strictyaml.Place

	writtenHosts, writtenUsers []string
}

// matches returns how specific a matching override is: by user, host, labels, time. The higher rank wins.
func (o *Override) matches(q enforce.Query) (rank [4]int, ok bool) {
	rank = [4]int{o.users[string(q.User)], 0, len(o.labels), 0}
	if rank[0] == 0 && len(o.writtenUsers) > 0 || !hasLabels(q.Labels, o.labels) {
		return rank, false
	}
	if rank[1] = o.hostRank(string(q.Host)); o.when != nil {
		rank[3] = 1
	}
	return rank, (rank[1] > 0 || len(o.hosts) == 0) && (o.when == nil || o.when.Contains(q.At))
}

func hasLabels(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// hostRank is 2 for a name, 1 for a pattern with ranges, 0 for neither.
func (o *Override) hostRank(host string) (best int) {
	for _, p := range o.hosts {
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

// overlap is the first minute of the week at which two overrides with schedules are equally specific for a host and
// user, and a setting of both.
func (o *Override) overlap(other *Override) (minute int, key string, found bool) {
	var hosts []string
	for _, p := range o.hosts {
		hosts = append(hosts, p.Expand()...)
	}
	sameUser := len(o.writtenUsers)+len(other.writtenUsers) == 0
	for user, rank := range o.users {
		sameUser = sameUser || other.users[user] == rank
	}
	sameHost := len(o.hosts)+len(other.hosts) == 0 ||
		slices.ContainsFunc(hosts, func(host string) bool { return o.hostRank(host) == other.hostRank(host) })
	if o.when == nil || other.when == nil || !maps.Equal(o.labels, other.labels) || !sameUser || !sameHost {
		return 0, "", false
	}
	at := slices.IndexFunc(keys(), func(k enforce.Setting) bool { return o.set.has(k.Key) && other.set.has(k.Key) })
	if minute, found = o.when.common(other.when); !found || at < 0 {
		return 0, "", false
	}
	return minute, keys()[at].Key, true
}

// String says what the override selects.
func (o *Override) String() string {
	var parts, labels []string
	add := func(name string, words ...string) {
		if len(words) > 0 {
			parts = append(parts, name+" "+strings.Join(words, ", "))
		}
	}
	add("users", o.writtenUsers...)
	add("hosts", o.writtenHosts...)
	for _, key := range slices.Sorted(maps.Keys(o.labels)) {
		labels = append(labels, key+"="+o.labels[key])
	}
	add("labels", labels...)
	if o.when != nil {
		add("schedule", o.when.Name)
	}
	return "override for " + strings.Join(parts, "; ")
}

// Resolve returns each setting from the most specific place for a host, a user and a time. An empty part of the query
// selects nothing. Exemptions are separate.
func (f *File) Resolve(q enforce.Query) Settings { return f.merged(f.layers(q), q.User) }

func (f *File) layers(q enforce.Query) []layer {
	var layers []layer
	for i := range f.overrides {
		if rank, ok := f.overrides[i].matches(q); ok {
			layers = append(layers, layer{rank, i})
		}
	}
	slices.SortStableFunc(layers, func(a, b layer) int { return slices.Compare(a.rank[:], b.rank[:]) })
	return layers
}

func (f *File) merged(layers []layer, user snapshot.Username) Settings {
	result := f.Defaults
	for _, l := range layers {
		result.merge(&f.overrides[l.override].set)
	}
	result.merge(&f.Flags)
	own := f.UserFlags[user]
	result.merge(&own)
	return result
}

type layer struct {
	rank     [4]int
	override int
}

// Explanation is a setting, its value, and where the value comes from.
type Explanation struct {
	Key   string `json:"key"` // as in the file
	Value string `json:"value"`
	From  string `json:"from"` // the place, in words
}

// Explain lists what applies to a host and a user at a time, and why: exemptions, settings, then the fleet's. known are
// the host's GPUs that are exempt by index, from the controller.
func (f *File) Explain(q enforce.Query, known ...enforce.ExemptGPU) []Explanation {
	q.User = f.Accounts.Name(q.User)
	var list []Explanation
	for _, s := range []enforce.Subject{{Host: q.Host}, {User: q.User}} {
		if what, from := f.exemptions.find(s, nil); what != "" {
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
		list = append(list, f.explainReservations(q.User)...)
		list = append(list, f.explainUnix(q.User)...)
	}
	for _, key := range slices.Concat(limitSettings, fleetSettings) {
		list = append(list, Explanation{key.Key, key.Text(&f.OfFleet), f.fleetFrom[key.Key].String()})
	}
	return list
}

func (f *File) explainReservations(user snapshot.Username) []Explanation {
	if len(f.reservations) == 0 {
		return nil
	}
	value := "nothing"
	switch rule, known := f.ReservationRule(user); {
	case !known:
		value = "unknown, since the groups of the user are"
	case rule != nil:
		value = rule.String()
	}
	return []Explanation{{"reservations", value, "reservations"}}
}

func (f *File) explainUnix(user snapshot.Username) (list []Explanation) {
	for _, group := range f.UnixGroupNames() {
		value := map[enforce.Membership]string{
			enforce.Member: "member", enforce.NotMember: "not a member", enforce.MembershipUnknown: "unknown",
		}[f.inUnixGroup(string(user), group)]
		list = append(list, Explanation{"group %" + group, value, "accounts of this machine"})
	}
	return list
}

func (r *reader) readOverride(n *strictyaml.Node) {
	o := Override{place: n.Place(), users: map[string]int{}}
	var set *strictyaml.Node
	before := r.doc.Errors()
	failed := func() bool { return r.doc.Errors() > before }
	n.Map(strictyaml.Keys{
		"hosts":  func(n *strictyaml.Node) { r.readHostList(n, &o) },
		"labels": func(n *strictyaml.Node) { o.labels = r.readLabels(n) },
		"users":  func(n *strictyaml.Node) { r.readUsers(n, &o) },
		"when":   func(n *strictyaml.Node) { o.when = r.readWhen(n) },
		"set":    func(n *strictyaml.Node) { set = n },
	})
	scope := o.scope()
	switch {
	case !n.IsMap() || set == nil && failed(): // it may be under a misspelt key
		return
	case set == nil:
		n.Failf("the override sets nothing; add `set:` with the settings that differ")
		return
	case scope == 0 && o.when == nil && !failed():
		n.Failf("the override applies to all users and hosts at all times; name hosts, labels, users or " +
			"when, or move it to `defaults:`")
	}
	r.readSettings(set, &o.set, scope, o.String())
	for i := range r.file.overrides {
		other := &r.file.overrides[i]
		if minute, key, found := o.overlap(other); found && !failed() {
			n.Failf("on %s both schedule %s here and schedule %s at %s set %s for the same hosts and users; write "+
				"hours that do not overlap", clock(minute), o.when.Name, other.when.Name, other.place, key)
		}
	}
	r.file.overrides = append(r.file.overrides, o)
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

func (o *Override) scope() enforce.Scope {
	var s enforce.Scope
	if len(o.hosts)+len(o.labels) > 0 {
		s |= enforce.ByHost
	}
	if len(o.writtenUsers) > 0 {
		s |= enforce.ByUser
	}
	return s
}

// An empty list would be everybody.
func (r *reader) readUsers(n *strictyaml.Node, o *Override) {
	n.List(func(item *strictyaml.Node) {
		users, isGroup := r.readUserOrGroup(item)
		rank := 2
		if isGroup {
			rank = 1
		}
		for _, user := range users {
			o.users[user] = max(o.users[user], rank)
		}
		o.writtenUsers = append(o.writtenUsers, item.Text())
	})
	if n.IsList() && len(o.writtenUsers) == 0 {
		n.Failf("users: name users or groups; leave it out for everybody")
	}
}

// An empty list would be all hosts.
func (r *reader) readHostList(n *strictyaml.Node, o *Override) {
	n.List(func(item *strictyaml.Node) {
		o.hosts = append(o.hosts, r.readHosts(item, item.Text()))
		o.writtenHosts = append(o.writtenHosts, item.Text())
	})
	if n.IsList() && len(o.hosts) == 0 {
		n.Failf("hosts: name hosts; leave it out for all")
	}
}
