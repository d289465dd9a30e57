package command

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// sources are the local files that name hosts, users and environments. What can't be read
// has no candidates.
type sources struct {
	ctx     context.Context
	getenv  func(string) string
	uid     snapshot.UID
	written inventory.Selection // what the line says about hosts
	known   *knownInventory     // nil until it is needed
}

// knownInventory is the inventory.
type knownInventory struct {
	hosts  []remote.Host
	groups []string
}

func newSources(ctx context.Context, p Program) *sources {
	return &sources{ctx: ctx, getenv: p.Getenv, uid: snapshot.UID(os.Geteuid())}
}

// read takes what a line says about the inventory.
func (s *sources) read(place *Place) {
	s.written.DefaultFiles, s.written.OpenDefault = ConfigPaths(s.getenv, HostsFile), OpenConfig
	if files := place.Values("hostfile"); len(files) > 0 {
		s.written.HostFile = files[len(files)-1]
	}
	for _, hosts := range place.Values("host") {
		s.addFiles(hosts)
	}
}

// addFiles takes the inventory files of a value of -H.
func (s *sources) addFiles(hosts string) {
	for item := range strings.SplitSeq(hosts, ",") {
		if strings.HasSuffix(item, ".yaml") || strings.HasSuffix(item, ".yml") {
			s.written.Hosts = append(s.written.Hosts, item)
		}
	}
}

func (s *sources) inventory() *knownInventory {
	if s.known == nil {
		s.known = new(knownInventory)
		s.known.hosts, s.known.groups, _ = inventory.Known(s.written, OpenAtOnce) // without those of an error
	}
	return s.known
}

// hosts are those of the inventory, with their labels.
func (s *sources) hosts() (candidates []candidate) {
	hosts := s.inventory().hosts
	for i := range hosts {
		candidates = append(candidates, candidate{hosts[i].Name, strings.Join(labelsOf(&hosts[i]), " ")})
	}
	return candidates
}

func labelsOf(h *remote.Host) (labels []string) {
	for _, key := range slices.Sorted(maps.Keys(h.Labels)) {
		labels = append(labels, key+"="+h.Labels[key])
	}
	return labels
}

func (s *sources) labels() (candidates []candidate) {
	hosts := s.inventory().hosts
	for i := range hosts {
		candidates = append(candidates, valuesOf(labelsOf(&hosts[i]))...)
	}
	return unique(candidates)
}

// selectable are what an item of -H may be: hosts, groups and labels.
func (s *sources) selectable(item string) []candidate {
	if strings.HasPrefix(item, "label:") {
		return prefixed("label:", s.labels(), "")
	}
	candidates := s.hosts()
	for _, group := range s.inventory().groups {
		candidates = append(candidates, candidate{group, "group"})
	}
	return candidates
}

// prefixed are candidates with something before and after them.
func prefixed(before string, candidates []candidate, after string) []candidate {
	for i := range candidates {
		candidates[i].value = before + candidates[i].value + after
	}
	return candidates
}

// users are the accounts of people, of environments, and of the inventory.
func (s *sources) users() []candidate {
	candidates, hosts := s.noted("USER"), s.inventory().hosts
	for i := range hosts {
		candidates = append(candidates, candidate{value: hosts[i].User})
	}
	ctx, cancel := context.WithTimeout(s.ctx, getentLimit)
	defer cancel()
	for _, account := range (nss.Passwd{}).All(ctx) {
		if account.UID == 0 || account.UID >= system.FirstUID() && account.UID != nobody {
			candidates = append(candidates, candidate{value: account.Name})
		}
	}
	return unique(candidates)
}

// nobody is the uid of accounts that stand for none.
const nobody = 65534

// getentLimit is how long the accounts may take: with a directory service that lists them
// all getent asks it.
const getentLimit = 300 * time.Millisecond

// noted are the values of a kind in the state files of this machine as they are: without the lock, which
// anybody may hold, and without a cleanup. Environments are those of this user; of root all.
func (s *sources) noted(kind string) (candidates []candidate) {
	files := s.state()
	for i := range files.Devices {
		if kind == "INDEX" {
			candidates = append(candidates, candidate{value: files.Devices[i].Index.String()})
		}
	}
	for i := range files.Environments {
		e := &files.Environments[i]
		switch kind {
		case "USER":
			candidates = append(candidates, candidate{value: string(e.Username)})
		case "kernel-id":
			for _, kernel := range e.KernelIDs {
				candidates = append(candidates, candidate{kernel, string(e.EID)})
			}
		case "id", "eid":
			if s.uid == 0 || e.UID == s.uid {
				candidates = append(candidates, candidate{string(e.EID), strings.TrimSpace(string(e.Username) + " " + e.Config.Name)})
			}
		}
	}
	return candidates
}

func (s *sources) state() (files state.Files) {
	dir, err := folder.OpenExisting(disk.Dir(s.getenv))
	if err != nil {
		return files
	}
	defer dir.Close()
	for _, file := range []state.File{state.Envs, state.Devices} {
		if data, _, err := dir.Read(file.String(), 8<<20); err == nil {
			_ = files.Decode(file, data)
		}
	}
	return files
}

// unique sorts, and leaves out what is empty or there already.
func unique(candidates []candidate) []candidate {
	slices.SortFunc(candidates, func(a, b candidate) int { return strings.Compare(a.value, b.value) })
	candidates = slices.CompactFunc(candidates, func(a, b candidate) bool { return a.value == b.value })
	return slices.DeleteFunc(candidates, func(c candidate) bool { return c.value == "" })
}
