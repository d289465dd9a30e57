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
	// defaultWarn is the warning of a cap of a share, of all but some GPUs, or that holds while others wait.
	defaultWarn = 30 * time.Minute
)

// readCap reads one item of `caps:`.
func (r *reader) readCap(n *strictyaml.Node) {
	c := &Cap{Place: n.Place(), zone: r.location()}
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
		"every":        func(n *strictyaml.Node) { c.Every = n.OneOf("month", "week") },
		"name":         func(n *strictyaml.Node) { c.Name = readCapName(n) },
		"together":     func(n *strictyaml.Node) { c.Together = n.Bool() },
		"per":          func(n *strictyaml.Node) { c.PerHost = n.OneOf("host") == "host" },
		"of":           func(n *strictyaml.Node) { r.readGPUs(n, &c.Of) },
		"users":        func(n *strictyaml.Node) { c.Users = r.readPeople(n, "users", "; leave it out for everybody") },
		"when":         func(n *strictyaml.Node) { c.When = r.readWhen(n) },
		"while":        func(n *strictyaml.Node) { c.Waiting = r.readWhile(n) },
		"warn":         func(n *strictyaml.Node) { c.Warn = readCapWarn(n) },
	}, partsOf())
	if !n.IsMap() || r.doc.Errors() > before {
		return
	}
	if c.check(n, amounts, kind); r.doc.Errors() == before {
		r.addCap(n, c)
	}
}

// partsOf are keys of `of:` that somebody may write beside it.
func partsOf() strictyaml.Keys {
	keys := strictyaml.Keys{}
	for _, key := range []string{"hosts", "labels", "model"} {
		keys[key] = func(n *strictyaml.Node) { n.Failf("%s: it is a part of `of`: write of: {%s: …}", key, key) }
	}
	return keys
}

// check records what contradicts itself in a cap.
func (c *Cap) check(n *strictyaml.Node, amounts int, kind string) {
	if amounts != 1 {
		n.Failf("a cap has one of gpus, memory, environments and gpu-hours")
		return
	}
	special := c.Limit.Percent || c.Limit.AllBut
	for _, wrong := range []struct {
		is      bool
		message string
	}{
		{c.Kind == enforce.CapHours && c.Every == "", "gpu-hours: the period is missing; add `every: month` or `every: week`"},
		{c.Kind != enforce.CapHours && c.Every != "", "every: it belongs to gpu-hours; remove it"},
		{special && c.Kind != enforce.CapGPUs, kind + ": N% and -N are for gpus alone"},
		{c.Together && c.By != nil, kind + ": people who share a cap have one amount; remove together, or write one number"},
		{c.Waiting != nil && c.Kind != enforce.CapGPUs && c.Kind != enforce.CapHours, "while: it is for gpus alone"},
		{c.Kind == enforce.CapHours && (c.PerHost || c.Waiting != nil), "gpu-hours: they have neither per nor while"},
		{c.Kind == enforce.CapEnvironments && c.Of.model != "", "environments: they have no model"},
	} {
		if wrong.is {
			n.Failf("%s", wrong.message)
		}
	}
	if c.Warn == nil && (special || c.Waiting != nil) {
		c.Warn = &enforce.Warn{For: defaultWarn}
	}
}

func (r *reader) addCap(n *strictyaml.Node, c *Cap) {
	for _, other := range r.file.CapList {
		switch {
		case c.Name != "" && c.Name == other.Name:
			n.Failf("the cap at %s has the name %s, too", other.Place, c.Name)
		case c.ID() == other.ID():
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

// readLimit reads an amount, or a mapping of amounts by person.
func (c *Cap) readLimit(r *reader, n *strictyaml.Node, key string) {
	if !n.IsMap() {
		c.Limit = readAmount(n, c.Kind)
		c.written = n.Scalar()
		return
	}
	var words []string
	n.Each(func(name, value *strictyaml.Node) {
		by := personLimit{who: r.readPerson(name, name.Text()), limit: readAmount(value, c.Kind)}
		if by.limit.Percent || by.limit.AllBut {
			value.Failf("%s: by person it is a number", key)
		}
		c.By = append(c.By, by)
		words = append(words, value.Scalar()+" for "+by.who.written)
	})
	if len(c.By) == 0 {
		n.Failf("%s: write a number, or numbers by person, as in {\"*\": 1, alice: 2}", key)
	}
	c.written = strings.Join(words, ", ")
}

// amount is how much the cap allows, in words.
func (c *Cap) amount() string {
	noun := map[enforce.CapKind]string{
		enforce.CapGPUs: "GPU", enforce.CapEnvironments: "environment", enforce.CapHours: "GPU hour",
	}[c.Kind]
	switch {
	case c.Limit.AllBut:
		return fmt.Sprintf("all but %d of the working GPUs", c.Limit.Value)
	case c.Limit.Percent:
		return c.written + " of the working GPUs"
	case c.Kind == enforce.CapMemory:
		noun = c.written + " of GPU memory"
	case c.By != nil:
		noun += "s (" + c.written + ")"
	case c.written == "1":
		noun = "1 " + noun
	default:
		noun = c.written + " " + noun + "s"
	}
	if c.Kind == enforce.CapHours {
		noun += " a " + c.Every
	}
	return noun
}

var percent = text.Pattern(`%$`)

func readAmount(n *strictyaml.Node, kind enforce.CapKind) enforce.CapLimit {
	written := n.Scalar()
	switch {
	case kind == enforce.CapMemory:
		bytes, err := text.ParseMemory(written)
		if err != nil {
			n.Failf("memory: %v", err)
		}
		return enforce.CapLimit{Value: bytes}
	case kind == enforce.CapHours:
		hours, err := strconv.ParseFloat(written, 64)
		if err != nil || !(hours >= 0 && hours <= 1e9) {
			n.Failf("gpu-hours: %q is not a number of hours", written)
		}
		return enforce.CapLimit{Value: int64(math.Round(hours * 3600))}
	case n.Matches(percent()):
		value, err := strconv.Atoi(strings.TrimSuffix(written, "%"))
		if err != nil || value < 1 || value > 100 {
			n.Failf("%q is not from 1%% to 100%%", written)
		}
		return enforce.CapLimit{Value: int64(value), Percent: true}
	}
	if _, err := strconv.ParseUint(written, 10, 31); err == nil && n.IsText() && kind == enforce.CapGPUs {
		n.Failf("%q is text: write %s for a number, or %s%% for a share", written, written, written)
		return enforce.CapLimit{}
	}
	value := n.Int(-maxLimit, maxLimit)
	return enforce.CapLimit{Value: int64(max(value, -value)), AllBut: strings.HasPrefix(written, "-")}
}

// readPerson reads a name, *, "@group" of the file or "%unixgroup".
func (r *reader) readPerson(n *strictyaml.Node, name string) person {
	p := person{written: name}
	switch {
	case name == "*" || name == "":
	case name[0] == '%':
		if p.unix = name[1:]; text.CheckUsername(p.unix) != nil {
			n.Failf("%q is not a Unix group", name)
		}
		r.refers(n, Reference{Kind: ToUnixGroup, Name: p.unix})
	case name[0] == '@':
		users, err := r.group(name[1:])
		if err != nil {
			n.Failf("%s: %v", name, err)
		}
		p.users = setOf(users)
	default:
		p.users = setOf(r.readUserName(n, name))
	}
	return p
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// readPeople reads a list of people, some of whom are left out by "!". An empty list would be everybody.
func (r *reader) readPeople(n *strictyaml.Node, key, otherwise string) (p people) {
	n.List(func(item *strictyaml.Node) {
		if name, without := strings.CutPrefix(item.Text(), "!"); without {
			p.without = append(p.without, r.readPerson(item, name))
		} else {
			p.entries = append(p.entries, r.readPerson(item, name))
		}
	})
	if n.IsList() && len(p.entries)+len(p.without) == 0 {
		n.Failf("%s: name users or groups%s", key, otherwise)
	}
	return p
}

// readWhile reads for whom a cap holds while they wait.
func (r *reader) readWhile(n *strictyaml.Node) *people {
	var waiting people
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
	}})
	if n.IsMap() && !given && r.doc.Errors() == before {
		n.Failf("while: write {waiting: [users]} or {waiting: anybody}")
	}
	return &waiting
}

func (r *reader) readGPUs(n *strictyaml.Node, g *gpuSelection) {
	n.Map(strictyaml.Keys{
		"hosts": func(n *strictyaml.Node) {
			n.List(func(item *strictyaml.Node) {
				g.writtenHosts = append(g.writtenHosts, item.Text())
				switch name, without := strings.CutPrefix(item.Text(), "!"); {
				case without:
					g.withoutHosts = append(g.withoutHosts, r.readHostEntry(item, name))
				case name != "*":
					g.hosts = append(g.hosts, r.readHostEntry(item, name))
				}
			})
			if slices.Contains(g.writtenHosts, "*") {
				g.hosts = nil
			}
			if n.IsList() && len(g.writtenHosts) == 0 {
				n.Failf("hosts: name hosts; leave it out for all")
			}
		},
		"labels": func(n *strictyaml.Node) { g.labels = r.readLabels(n) },
		"model": func(n *strictyaml.Node) {
			g.model = n.Text()
			r.refers(n, Reference{Kind: ToModel, Name: g.model})
		},
	})
}

// readHostEntry reads a pattern of hosts, or the name of a group of the inventory.
func (r *reader) readHostEntry(n *strictyaml.Node, name string) hostEntry {
	if group, isGroup := strings.CutPrefix(name, "@"); isGroup {
		r.refers(n, Reference{Kind: ToHost, Name: name})
		return hostEntry{group: group, place: n.Place()}
	}
	return hostEntry{pattern: r.readHosts(n, name)}
}

func readCapWarn(n *strictyaml.Node) *enforce.Warn {
	var s enforce.Settings
	for _, key := range enforce.RuleWarns() {
		if key.Key == enforce.WarnOfRule+string(enforce.RuleCaps) {
			key.Read(&s, n)
		}
	}
	warn := s.RuleWarns[enforce.RuleCaps]
	return &warn
}

// Reservation is who may reserve GPUs, and how many for how long.
type Reservation struct {
	Users  people
	GPUs   int
	AtOnce int
	// Longest is for how long, Ahead how long before, and Pause how long after another one.
	Longest, Ahead, Pause time.Duration
}

// readReservation reads one item of `reservations:`.
func (r *reader) readReservation(n *strictyaml.Node) {
	var res Reservation
	given, before := false, r.doc.Errors()
	n.Map(strictyaml.Keys{
		"users":   func(n *strictyaml.Node) { given, res.Users = true, r.readPeople(n, "users", "") },
		"gpus":    func(n *strictyaml.Node) { res.GPUs = n.Int(1, maxLimit) },
		"at-once": func(n *strictyaml.Node) { res.AtOnce = n.Int(1, maxLimit) },
		"longest": func(n *strictyaml.Node) { res.Longest = n.Duration(time.Minute, maxReserve) },
		"ahead":   func(n *strictyaml.Node) { res.Ahead = n.Duration(time.Minute, maxReserve) },
		"pause":   func(n *strictyaml.Node) { res.Pause = n.Duration(time.Minute, maxReserve) },
	})
	if n.IsMap() && !given && r.doc.Errors() == before {
		n.Failf("reservations: say who may reserve; add `users:`")
	}
	r.file.Reservations = append(r.file.Reservations, res)
}

const maxReserve = 366 * 24 * time.Hour

// location is the zone of the file, or this machine's own.
func (r *reader) location() *time.Location {
	if r.zone == nil {
		return time.Local
	}
	return r.zone
}
