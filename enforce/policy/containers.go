package policy

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// containerExemption is an entry of exempt: containers:. What it doesn't name may be
// anything.
type containerExemption struct {
	name, image        string // in which * is any text
	matchName, matchIm *regexp.Regexp
	key, value         string // of a label
	from               Source
}

// Container says whether the container of a process is exempt. Only one of root's runtime
// can be: a user of a rootless one would choose its name and labels. What the runtime did
// not tell may be what an entry names.
func (e *Exemptions) Container(p *snapshot.Process) (Source, bool) {
	if !p.OfRootsRuntime() {
		return Source{}, false
	}
	for i := range e.containers {
		if x := &e.containers[i]; x.matches(p.ContainerInfo) {
			return x.from, true
		}
	}
	return Source{}, false
}

// matches compares an entry with what is known of a container. Of one that is known only by
// its cgroup (LXC, systemd-nspawn) that is the name alone: without an image it has no exempt
// one.
func (x *containerExemption) matches(c *snapshot.ContainerInfo) bool {
	if c.Unknown && c.Name == "" {
		return true
	}
	label, labelled := c.Labels[x.key]
	return (x.name == "" || x.matchName.MatchString(c.Name)) &&
		(x.image == "" || c.Image != "" && x.matchIm.MatchString(c.Image)) &&
		(x.key == "" || labelled && label == x.value || !labelled && c.LabelsCut)
}

// readContainer reads a name, an image and a label, of which one has to be there.
func (e *Exemptions) readContainer(n *strictyaml.Node) {
	x, labelled := containerExemption{from: exemptAt(n)}, false
	n.Map(strictyaml.Keys{
		"name":  func(n *strictyaml.Node) { x.name = strings.TrimPrefix(n.Text(), "/") },
		"image": func(n *strictyaml.Node) { x.image = n.Text() },
		"label": func(n *strictyaml.Node) {
			key, value, found := strings.Cut(n.Text(), "=")
			if !found || key == "" {
				n.Failf("%q is not a label; write it as KEY=VALUE", n.Text())
			}
			x.key, x.value, labelled = key, value, true
		},
	})
	if n.IsMap() && x.name == "" && x.image == "" && !labelled {
		n.Failf("a container is identified by its name, image or label, as in {name: web, image: \"lab/*\", label: team=vision}")
	}
	x.matchName, x.matchIm = glob(x.name), glob(x.image)
	e.containers = append(e.containers, x)
}

// canonical is the entry without its place.
func (x *containerExemption) canonical() string {
	return fmt.Sprintf("exempt container %q %q %q %q", x.name, x.image, x.key, x.value)
}

// Accounts are the names that users have besides the one under which rules know them: an
// account of a directory can have several, and so can a uid in /etc/passwd. A rule for one of
// them holds for all, since they are one user.
type Accounts map[snapshot.Username]snapshot.Username

// Name is the name under which rules know a user.
func (a Accounts) Name(user snapshot.Username) snapshot.Username {
	if name, other := a[user]; other {
		return name
	}
	return user
}
