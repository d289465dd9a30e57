package app

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/configfile"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/snapshot"
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
	known   *known              // nil until it is needed
}

// known is the inventory.
type known struct {
	hosts  []remote.Host
	groups []string
}

func newSources(ctx context.Context, p command.Program) *sources {
	return &sources{ctx: ctx, getenv: p.Getenv, uid: snapshot.UID(os.Geteuid())}
}

// read takes what a line says about the inventory.
func (s *sources) read(place *command.Place) {
	s.written.DefaultFiles, s.written.OpenDefault = configfile.Paths(s.getenv, configfile.Hosts), configfile.Open
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
		if isYAML(item) {
			s.written.Hosts = append(s.written.Hosts, item)
		}
	}
}

func (s *sources) inventory() *known {
	if s.known == nil {
		s.known = new(known)
		if hosts, groups, err := inventory.Known(s.written, command.OpenAtOnce); err == nil {
			s.known.hosts, s.known.groups = hosts, groups
		}
	}
	return s.known
}

func (s *sources) hosts() (candidates []candidate) {
	hosts := s.inventory().hosts
	for i := range hosts {
		candidates = append(candidates, candidate{hosts[i].Name, describeHost(&hosts[i])})
	}
	return candidates
}

func describeHost(h *remote.Host) string {
	var words []string
	for key, value := range h.Labels {
		words = append(words, key+"="+value)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// selectable are what an item of -H may be: hosts, groups, labels, and YAML files of this
// folder. An exclamation mark and a user may come before it.
func (s *sources) selectable(item string) []candidate {
	candidates := s.hosts()
	for _, group := range s.inventory().groups {
		candidates = append(candidates, candidate{group, "group"})
	}
	before := ""
	switch at := strings.LastIndexByte(item, '@'); {
	case strings.HasPrefix(item, "!"):
		before = "!"
	case at > 0: // a user
		before, candidates = item[:at+1], s.hosts()
	case strings.HasPrefix(item, "label:"):
		before, candidates = "label:", s.labels()
	default:
		return append(candidates, s.inventoryFiles(item)...)
	}
	for i := range candidates {
		candidates[i].value = before + candidates[i].value
	}
	return candidates
}

// inventoryFiles are the YAML files of the folder of a path, and its folders if the path
// has begun.
func (s *sources) inventoryFiles(path string) []candidate {
	return slices.DeleteFunc(s.entries(path), func(c candidate) bool {
		return path == "" && isFolder(c) || !isFolder(c) && !isYAML(c.value)
	})
}

// paths completes a path that begins after skip bytes of a word.
func (s *sources) paths(word string, skip int, files bool) answer {
	return pathAnswer(word, skip, slices.DeleteFunc(s.entries(word[skip:]), func(c candidate) bool { return !files && !isFolder(c) }))
}

// entries are what the folder of a path contains; folders end in a slash.
func (s *sources) entries(path string) (candidates []candidate) {
	dir, _ := filepath.Split(path)
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		dir = filepath.Join(s.getenv("HOME"), rest)
	}
	opened, err := os.Open(cmp.Or(dir, "."))
	if err != nil {
		return nil
	}
	defer opened.Close()
	entries, _ := opened.ReadDir(most)
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() {
			name += "/"
		}
		if !strings.HasPrefix(name, ".") {
			candidates = append(candidates, candidate{value: name})
		}
	}
	return unique(candidates)
}

func isYAML(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

func (s *sources) labels() (candidates []candidate) {
	hosts := s.inventory().hosts
	for i := range hosts {
		for key, value := range hosts[i].Labels {
			candidates = append(candidates, candidate{key + "=" + value, ""})
		}
	}
	return unique(candidates)
}

// users are the accounts of people, of environments, and of the inventory.
func (s *sources) users() (candidates []candidate) {
	hosts := s.inventory().hosts
	for i := range hosts {
		candidates = append(candidates, candidate{value: hosts[i].User})
	}
	files := s.state()
	for i := range files.Environments {
		candidates = append(candidates, candidate{value: string(files.Environments[i].Username)})
	}
	for line := range bytes.Lines(s.passwd()) {
		fields := strings.Split(string(line), ":")
		if len(fields) != 7 {
			continue
		}
		if uid, err := strconv.Atoi(fields[2]); err == nil && (uid == 0 || uid >= 1000 && uid < 65534) {
			candidates = append(candidates, candidate{value: fields[0]})
		}
	}
	return unique(candidates)
}

// getentLimit is how long the accounts may take: with a directory service that lists them
// all getent asks it.
const getentLimit = 300 * time.Millisecond

// passwd are the accounts as getent lists them; those of /etc/passwd if it fails or takes
// too long.
func (s *sources) passwd() []byte {
	ctx, cancel := context.WithTimeout(s.ctx, getentLimit)
	defer cancel()
	if out, err := system.Getent(ctx, "passwd"); err == nil {
		return out
	}
	out, _ := os.ReadFile("/etc/passwd")
	return out
}

// state are the state files of this machine as they are: without the lock, which anybody
// may hold, and without a cleanup.
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

// environments are those of this user; of root all.
func (s *sources) environments() (candidates []candidate) {
	files := s.state()
	for i := range files.Environments {
		e := &files.Environments[i]
		if s.uid == 0 || e.UID == s.uid {
			candidates = append(candidates, candidate{string(e.EID), strings.TrimSpace(string(e.Username) + " " + e.Config.Name)})
		}
	}
	return candidates
}

func (s *sources) kernels() (candidates []candidate) {
	files := s.state()
	for i := range files.Environments {
		for _, kernel := range files.Environments[i].KernelIDs {
			candidates = append(candidates, candidate{kernel, string(files.Environments[i].EID)})
		}
	}
	return candidates
}

func (s *sources) devices() (candidates []candidate) {
	files := s.state()
	for i := range files.Devices {
		candidates = append(candidates, candidate{value: files.Devices[i].Index.String()})
	}
	return candidates
}

// unique sorts, and leaves out what is empty or there already.
func unique(candidates []candidate) []candidate {
	slices.SortFunc(candidates, func(a, b candidate) int { return strings.Compare(a.value, b.value) })
	candidates = slices.CompactFunc(candidates, func(a, b candidate) bool { return a.value == b.value })
	return slices.DeleteFunc(candidates, func(c candidate) bool { return c.value == "" })
}
