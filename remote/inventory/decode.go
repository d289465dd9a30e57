package inventory

import (
	"cmp"
	"maps"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	Builtin = "builtin" // genv's own SSH, the default
	OpenSSH = "openssh" // runs ssh(1)
)

// Ways are all values of `ssh:`.
var Ways = []string{Builtin, OpenSSH}

// hostSettings are the keys allowed in both `defaults:` and entries of `hosts:`.
type hostSettings struct {
	port   int
	user   string
	genv   string
	sudo   *bool
	ssh    string
	labels map[string]string
}

func (f *fleet) add(file yamlFile) error {
	f.files = append(f.files, file.path)
	doc := strictyaml.Parse(file.path, file.data)
	f.addDocument(doc)
	if err := doc.Err(); err != nil {
		return usagef("%w", err)
	}
	return nil
}

// Schema is the JSON Schema of an inventory.
func Schema() map[string]any {
	return strictyaml.Describe(func(doc *strictyaml.Document) { newFleet().addDocument(doc) })
}

func (f *fleet) addDocument(doc *strictyaml.Document) {
	var defaults hostSettings
	var hosts, groups *strictyaml.Node
	doc.Root().Map(strictyaml.Keys{
		"defaults": func(n *strictyaml.Node) { n.Map(defaults.keys()) },
		"hosts":    func(n *strictyaml.Node) { hosts = n },
		"groups":   func(n *strictyaml.Node) { groups = n },
	})
	if hosts != nil { // after defaults and before groups, whatever their order
		hosts.List(func(n *strictyaml.Node) { f.addEntry(n, defaults) })
	}
	if groups != nil && doc.Err() == nil {
		f.addGroups(groups)
	}
}

func (s *hostSettings) keys() strictyaml.Keys {
	return strictyaml.Keys{
		"port": func(n *strictyaml.Node) { s.port = n.Int(1, 65535) },
		"user": func(n *strictyaml.Node) {
			if s.user = n.Text(); s.user != "" {
				if err := text.CheckUsername(s.user); err != nil {
					n.Failf("%v", err)
				}
			}
		},
		"genv": func(n *strictyaml.Node) { s.genv = n.Text() },
		"sudo": func(n *strictyaml.Node) { s.sudo = new(n.Bool()) },
		"ssh":  func(n *strictyaml.Node) { s.ssh = n.OneOf(Ways...) },
		"labels": func(n *strictyaml.Node) {
			s.labels = map[string]string{}
			n.Each(func(key, value *strictyaml.Node) { s.labels[key.Text()] = value.Scalar() })
		},
	}
}

func (s hostSettings) over(defaults hostSettings) remote.Host {
	labels := map[string]string{}
	maps.Copy(labels, defaults.labels)
	maps.Copy(labels, s.labels)
	sudo := cmp.Or(s.sudo, defaults.sudo)
	return remote.Host{
		Port:     cmp.Or(s.port, defaults.port),
		User:     cmp.Or(s.user, defaults.user),
		GenvPath: cmp.Or(s.genv, defaults.genv),
		NoSudo:   sudo != nil && !*sudo,
		OpenSSH:  cmp.Or(s.ssh, defaults.ssh) == OpenSSH,
		Labels:   labels,
	}
}

func (f *fleet) addEntry(n *strictyaml.Node, defaults hostSettings) {
	if !n.IsMap() {
		if h, names, ok := readDestination(n); ok {
			f.addHosts(n, names, nil, hostSettings{user: h.User, port: h.Port}.over(defaults))
		}
		return
	}
	var s hostSettings
	var name, address *strictyaml.Node
	keys := s.keys()
	keys["name"] = func(n *strictyaml.Node) { name = n }
	keys["address"] = func(n *strictyaml.Node) { address = n }
	n.Map(keys)
	if name == nil {
		n.Failf("the name of the host is missing; add `name:`")
		return
	}
	names := expand(name)
	addresses := expand(address)
	if n := len(addresses); n > 0 && n != len(names) {
		address.Failf("address: %d addresses for %d names; write a range with the same number", n, len(names))
		return
	}
	f.addHosts(name, names, addresses, s.over(defaults))
}

func readDestination(n *strictyaml.Node) (h remote.Host, names []string, ok bool) {
	word := n.Text()
	if word == "" {
		return h, nil, false
	}
	if strings.HasPrefix(word, "@") {
		n.Failf("%s: a host group is not allowed here; use it in `groups:`", word)
		return h, nil, false
	}
	h, err := parseDestination(word)
	if err == nil {
		var pattern text.HostPattern
		if pattern, err = text.ParseHosts(h.Name); err == nil {
			return h, pattern.Expand(), true
		}
	}
	n.Failf("%v", err)
	return h, nil, false
}

// expand reads a pattern without user and port; n may be nil.
func expand(n *strictyaml.Node) []string {
	if n == nil {
		return nil
	}
	h, names, ok := readDestination(n)
	if ok && (h.User != "" || h.Port != 0) {
		n.Failf("%q is more than a host; write `user:` and `port:` on lines of their own", n.Text())
		return nil
	}
	return names
}

func (f *fleet) addHosts(n *strictyaml.Node, names, addresses []string, like remote.Host) {
	if len(f.hosts)+len(names) > maxHosts {
		n.Failf("that makes more than %d hosts; write a smaller range", maxHosts)
		return
	}
	for i, name := range names {
		key := text.FoldHost(name)
		if place, ok := f.places[key]; ok {
			n.Failf("host %s is defined at %s already; remove one of them", name, place)
			return
		}
		host := like
		host.Name, host.Labels = name, maps.Clone(like.Labels)
		if addresses != nil {
			host.Address = addresses[i]
		}
		f.places[key] = n.Place().String()
		f.index[key] = len(f.hosts)
		f.hosts = append(f.hosts, host)
	}
}

// addGroups reads `groups:`. The fleet's hosts must be known.
func (f *fleet) addGroups(n *strictyaml.Node) {
	n.Each(func(key, _ *strictyaml.Node) {
		name := strings.TrimPrefix(key.Text(), "@")
		if place, ok := f.places["@"+name]; ok {
			key.Failf("host group %s is defined at %s already; rename one of them", name, place)
		}
		f.places["@"+name] = key.Place().String()
	})
	maps.Copy(f.groups, strictyaml.GroupReader{Members: f.known, Other: f.members, Fold: text.FoldHost}.Read(n))
}

func (f *fleet) known(item *strictyaml.Node) []string {
	list := expand(item)
	for i, name := range list {
		host, ok := f.host(name)
		if !ok {
			item.Failf("host %s is not in `hosts:`; %s", name,
				text.Hint(name, names(f.hosts), "add it there, or correct the name"))
			return nil
		}
		list[i] = host.Name
	}
	return list
}
