package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	maxCaps    = 64
	maxCapName = 32 // characters
	// defaultWarn is the warning of a cap of a share, of all but some GPUs, or with while.
	defaultWarn = 30 * time.Minute
)

func (r *reader) readCap(n *strictyaml.Node) {
	c := &Cap{place: n.Place(), zone: r.location()}
	amounts, kind, before := 0, "", r.doc.Errors()
	amount := func(key string, k enforce.CapKind) func(*strictyaml.Node) {
		return func(n *strictyaml.Node) {
			amounts, kind, c.Kind = amounts+1, key, k
			c.readLimit(r, n, key)
		}
	}
	n.Map(strictyaml.Keys{
		"gpus":         amount("gpus", enforce.CapGPUs),
		"memory":       amount("memory", enforce.CapMemory),
		"environments": amount("environments", enforce.CapEnvironments),
		"gpu-hours":    amount("gpu-hours", enforce.CapHours),
		"every":        func(n *strictyaml.Node) { c.every = n.OneOf("month", "week") },
		"name":         func(n *strictyaml.Node) { c.Name = readCapName(n) },
		"together":     func(n *strictyaml.Node) { c.Together = n.Bool() },
		"per":          func(n *strictyaml.Node) { c.PerHost = n.OneOf("host") == "host" },
		"of":           func(n *strictyaml.Node) { r.readGPUs(n, c) },
		"users":        func(n *strictyaml.Node) { c.users = r.readPeople(n, "users", "; leave it out for everybody") },
		"when":         func(n *strictyaml.Node) { c.when = r.readWhen(n) },
		"while":        func(n *strictyaml.Node) { c.waiting = r.readWhile(n) },
		"warn":         func(n *strictyaml.Node) { c.Warn = new(enforce.ReadWarn(n)) },
	}, partsOf())
	if !n.IsMap() || r.doc.Errors() > before {
		return
	}
	if c.check(n, amounts, kind); r.doc.Errors() == before {
		r.addCap(n, c)
	}
}

func partsOf() strictyaml.Keys {
	keys := strictyaml.Keys{}
	for _, key := range []string{"hosts", "labels", "model"} {
		keys[key] = func(n *strictyaml.Node) { n.Failf("%s: it is a part of `of`: write of: {%s: …}", key, key) }
	}
	return keys
}

func (c *Cap) check(n *strictyaml.Node, amounts int, kind string) {
	if amounts != 1 {
		n.Failf("a cap has exactly one of gpus, memory, environments and gpu-hours")
		return
	}
	special := c.limit.Percent || c.limit.AllBut
	for _, wrong := range []struct {
		is      bool
		message string
	}{
		{c.Kind == enforce.CapHours && c.every == "", "gpu-hours: the period is missing; add `every: month` or " +
			"`every: week`"},
		{c.Kind != enforce.CapHours && c.every != "", "every: it belongs to gpu-hours; remove it"},
		{special && c.Kind != enforce.CapGPUs, kind + ": N% and -N are for gpus alone"},
		{c.Together && c.by != nil, kind + ": people who share a cap have one amount; remove together, or write one " +
			"number"},
		{c.waiting != nil && c.Kind != enforce.CapGPUs && c.Kind != enforce.CapHours, "while: only a cap of gpus can have it; remove it"},
		{c.Kind == enforce.CapHours && (c.PerHost || c.waiting != nil), "gpu-hours: they count on all hosts together; remove `per` and `while`"},
		{c.Kind == enforce.CapEnvironments && c.Model != "", "environments: they have no model; remove it from `of`"},
	} {
		if wrong.is {
			n.Failf("%s", wrong.message)
		}
	}
	if c.Warn == nil && (special || c.waiting != nil) {
		c.Warn = &enforce.Warn{For: defaultWarn}
	}
}

func (r *reader) addCap(n *strictyaml.Node, c *Cap) {
	c.complete()
	for _, other := range r.file.CapList {
		switch {
		case c.Name != "" && c.Name == other.Name:
			n.Failf("the cap at %s has the name %s, too", other.Place, c.Name)
		case c.ID == other.ID:
			n.Failf("the cap at %s says the same; give them names, or remove one", other.Place)
		}
	}
	if r.file.CapList = append(r.file.CapList, c); len(r.file.CapList) == maxCaps+1 {
		n.Failf("there are more than %d caps", maxCaps)
	}
}

func readCapName(n *strictyaml.Node) string {
	name := n.Text()
	_, isRule := enforce.Rule(name).Setting()
	switch {
	case !isCapName(name):
		n.Failf("name: at most %d printable characters without /", maxCapName)
	case isRule:
		n.Failf("name: %s is the name of a rule", name)
	}
	return name
}

func isCapName(name string) bool {
	return utf8.RuneCountInString(name) <= maxCapName && text.Printable(name) == name && !strings.Contains(name, "/")
}

func (c *Cap) readLimit(r *reader, n *strictyaml.Node, key string) {
	if !n.IsMap() {
		c.limit, c.written = r.readAmount(n, c.Kind)
		return
	}
	var words []string
	n.Each(func(name, value *strictyaml.Node) {
		limit, written := r.readAmount(value, c.Kind)
		if limit.Percent || limit.AllBut {
			value.Failf("%s: write a number for each person", key)
		}
		who := r.readPerson(name, name.Text())
		who.limit = limit
		c.by = append(c.by, who)
		words = append(words, written+" for "+name.Text())
	})
	if len(c.by) == 0 {
		n.Failf("%s: write a number, or numbers by person, as in {\"*\": 1, alice: 2}", key)
	}
	c.written = strings.Join(words, ", ")
}

func (c *Cap) amount() string {
	noun := map[enforce.CapKind]string{
		enforce.CapGPUs: "GPU", enforce.CapEnvironments: "environment", enforce.CapHours: "GPU hour",
	}[c.Kind]
	switch {
	case c.limit.AllBut:
		return fmt.Sprintf("all but %d of the working GPUs", c.limit.Value)
	case c.limit.Percent:
		return c.written + " of the working GPUs"
	case c.Kind == enforce.CapMemory && c.by == nil:
		noun = c.written + " of GPU memory"
	case c.Kind == enforce.CapMemory:
		noun = "GPU memory (" + c.written + ")"
	case c.by != nil:
		noun += "s (" + c.written + ")"
	case c.written == "1":
		noun = "1 " + noun
	default:
		noun = c.written + " " + noun + "s"
	}
	if c.Kind == enforce.CapHours {
		noun += " a " + c.every
	}
	return noun
}

var percent, digits = text.Pattern(`%$`), text.Pattern(`^[0-9]+$`)

func (r *reader) readAmount(n *strictyaml.Node, kind enforce.CapKind) (limit enforce.CapLimit, written string) {
	before := r.doc.Errors()
	switch {
	case kind == enforce.CapMemory:
		written = n.Scalar()
		bytes, err := text.ParseMemory(written)
		switch limit.Value = bytes; {
		case r.doc.Errors() > before: // which said it
		case err != nil:
			n.Failf("memory: %v", err)
		case bytes > 0 && bytes < 1<<20:
			n.Failf("memory: %s is %d bytes; write it with a unit, as in 80g", written, bytes)
		}
	case kind == enforce.CapHours:
		written = n.Scalar()
		hours, err := strconv.ParseFloat(written, 64)
		if r.doc.Errors() == before && (err != nil || !(hours >= 0 && hours <= 1e9)) {
			n.Failf("gpu-hours: %q is not a number of hours", written)
		}
		limit.Value = int64(math.Round(hours * 3600))
	case n.Matches(percent()):
		written = n.Scalar()
		value, err := strconv.Atoi(strings.TrimSuffix(written, "%"))
		if err != nil || value < 1 || value > 100 {
			n.Failf("%q is not from 1%% to 100%%", written)
		}
		limit = enforce.CapLimit{Value: int64(value), Percent: true}
	case n.IsText() && kind == enforce.CapGPUs && n.Matches(digits()):
		n.Failf("%q is text: write %s for a number, or %s%% for a share", n.Scalar(), n.Scalar(), n.Scalar())
	default:
		value := n.Int(-maxLimit, maxLimit)
		if r.doc.Errors() == before {
			written = n.Scalar()
		}
		limit = enforce.CapLimit{Value: int64(max(value, -value)), AllBut: strings.HasPrefix(written, "-")}
	}
	return limit, written
}

// readPerson reads a name, *, "@group" of the file or "%unixgroup".
func (r *reader) readPerson(n *strictyaml.Node, name string) entry {
	e := entry{written: name}
	switch {
	case name == "*" || name == "":
		e.has = func(string) enforce.Membership { return enforce.Member }
		return e
	case name[0] == '%':
		group := name[1:]
		if text.CheckUsername(group) != nil {
			n.Failf("%q is not a Unix group", name)
		}
		r.refers(n, Reference{Kind: ToUnixGroup, Name: group})
		e.has = func(user string) enforce.Membership { return r.file.inUnixGroup(user, group) }
		return e
	}
	var users []string
	if group, isGroup := strings.CutPrefix(name, "@"); isGroup {
		users = r.readGroup(n, group)
	} else {
		users = r.readUserName(n, name)
	}
	e.users = make(map[string]bool, len(users))
	for _, user := range users {
		e.users[user] = true
	}
	e.has = func(user string) enforce.Membership { return memberIf(e.users[user]) }
	return e
}

// readSelection reads a list of people or hosts, with exceptions after "!". An empty list would be all.
func (r *reader) readSelection(n *strictyaml.Node, read func(*strictyaml.Node, string) entry, empty string,
) (s selection) {
	isEmpty := n.IsList()
	n.List(func(item *strictyaml.Node) {
		isEmpty = false
		switch name, without := strings.CutPrefix(item.Text(), "!"); {
		case without && name == "":
			item.Failf("there is no name after the \"!\"")
		case without:
			s.without = append(s.without, read(item, name))
		default:
			s.entries = append(s.entries, read(item, name))
		}
	})
	if isEmpty {
		n.Failf("%s", empty)
	}
	return s
}

func (r *reader) readPeople(n *strictyaml.Node, key, otherwise string) selection {
	return r.readSelection(n, r.readPerson, key+": name users or groups"+otherwise)
}

func (r *reader) readWhile(n *strictyaml.Node) *selection {
	var waiting selection
	given, before := false, r.doc.Errors()
	n.Map(strictyaml.Keys{"waiting": func(n *strictyaml.Node) {
		if given = true; n.IsText() {
			if who := n.Text(); who != "" && who != "anybody" {
				n.Failf("waiting: write [%q], or anybody", who)
				return
			}
			n.OneOf("anybody")
			return
		}
		waiting = r.readPeople(n, "waiting", ", or write anybody")
		isAnybody := func(e entry) bool { return e.written == "*" || e.written == "anybody" }
		if slices.ContainsFunc(waiting.entries, isAnybody) {
			n.Failf("waiting: write anybody without brackets")
		}
	}})
	if n.IsMap() && !given && r.doc.Errors() == before {
		n.Failf("while: write {waiting: [users]} or {waiting: anybody}")
	}
	return &waiting
}

func (r *reader) readGPUs(n *strictyaml.Node, c *Cap) {
	n.Map(strictyaml.Keys{
		"hosts": func(n *strictyaml.Node) {
			c.hosts = r.readSelection(n, r.readHostEntry, "hosts: name hosts; leave it out for all")
		},
		"labels": func(n *strictyaml.Node) { c.labels = r.readLabels(n) },
		"model": func(n *strictyaml.Node) {
			c.Model = n.Text()
			r.refers(n, Reference{Kind: ToModel, Name: c.Model})
		},
	})
}

// readHostEntry reads a pattern, *, or "@group" of the inventory.
func (r *reader) readHostEntry(n *strictyaml.Node, name string) entry {
	e := entry{written: name}
	group, isGroup := strings.CutPrefix(name, "@")
	switch {
	case name == "*":
		e.has = func(string) enforce.Membership { return enforce.Member }
	case isGroup:
		r.refers(n, Reference{Kind: ToHost, Name: name})
		e.has = func(host string) enforce.Membership {
			hosts, known := r.file.HostGroups[group]
			if !known {
				return enforce.MembershipUnknown
			}
			return memberIf(slices.ContainsFunc(hosts, func(other string) bool {
				return text.FoldHost(other) == text.FoldHost(host)
			}))
		}
	default:
		pattern := r.readHosts(n, name)
		e.has = func(host string) enforce.Membership { return memberIf(pattern.Matches(host)) }
	}
	return e
}

func (r *reader) readReservation(n *strictyaml.Node) {
	var res reservation
	given, before := false, r.doc.Errors()
	upTo := func(d *time.Duration) func(*strictyaml.Node) {
		return func(n *strictyaml.Node) { *d = n.Duration(time.Minute, maxReserve) }
	}
	n.Map(strictyaml.Keys{
		"users":   func(n *strictyaml.Node) { given, res.users = true, r.readPeople(n, "users", "") },
		"gpus":    func(n *strictyaml.Node) { res.rule.GPUs = n.Int(1, maxLimit) },
		"at-once": func(n *strictyaml.Node) { res.rule.AtOnce = n.Int(1, maxLimit) },
		"longest": upTo(&res.rule.Longest), "ahead": upTo(&res.rule.Ahead), "pause": upTo(&res.rule.Pause),
	})
	if n.IsMap() && !given && r.doc.Errors() == before {
		n.Failf("reservations: say who may reserve; add `users:`")
	}
	r.file.reservations = append(r.file.reservations, res)
}

const maxReserve = 366 * 24 * time.Hour

func (r *reader) location() *time.Location {
	if r.zone == nil {
		return time.Local
	}
	return r.zone
}
