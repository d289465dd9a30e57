package usage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Bounds of names: hosts, and users who write state files, can invent them.
const (
	maxUsers        = 20_000
	maxUsersPerHost = 256 // first seen on that host
	maxModels       = 256
	maxName         = 64 // bytes
)

// Other stands for all users beyond the bounds.
const Other snapshot.Username = "(other)"

// Names are the names that are counted separately.
type Names struct {
	users  map[snapshot.Username]struct{}
	models map[string]struct{}
	hosts  map[snapshot.Hostname]*hostNames
}

type hostNames struct {
	*Names
	introduced int                                // of users
	devices    map[snapshot.DeviceIndex][2]string // UUID and model, when last reported
}

// NewNames returns Names without any.
func NewNames() *Names {
	return &Names{
		users: make(map[snapshot.Username]struct{}), models: make(map[string]struct{}),
		hosts: make(map[snapshot.Hostname]*hostNames),
	}
}

func (n *Names) of(host snapshot.Hostname) *hostNames {
	if n.hosts[host] == nil {
		n.hosts[host] = &hostNames{Names: n, devices: make(map[snapshot.DeviceIndex][2]string)}
	}
	return n.hosts[host]
}

// Attached counts a host's attached devices per user.
func (n *Names) Attached(host snapshot.Hostname, s *snapshot.Snapshot) map[string]int {
	names, environments, counts := n.of(host), snapshot.ByID(s.Environments), make(map[string]int)
	for i := range s.Devices {
		here := make(map[snapshot.Username]bool)
		for _, a := range s.Devices[i].Attachments {
			user := names.user(gpus.UserName(environments[a.EID].Account()))
			if user != "" && !here[user] {
				here[user] = true
				counts[string(user)]++
			}
		}
	}
	return counts
}

// Label is the name under which a user is counted, if any.
func (n *Names) Label(user snapshot.Username) (label string, counted bool) {
	user = Cut(user)
	_, counted = n.users[user]
	return string(user), counted
}

func (h *hostNames) user(name snapshot.Username) snapshot.Username {
	name = Cut(name)
	if IsPseudonym(string(name)) {
		return Other // a host invented it
	}
	if _, found := h.users[name]; found || name == "" {
		return name
	}
	if len(h.users) >= maxUsers || h.introduced >= maxUsersPerHost {
		return Other
	}
	h.introduced++
	h.users[name] = struct{}{}
	return name
}

// model is the last reported model of the same GPU.
func (h *hostNames) model(d *snapshot.Device) string {
	name := Cut(d.Name)
	if _, found := h.models[name]; !found && name != "" {
		if len(h.models) >= maxModels {
			return ""
		}
		h.models[name] = struct{}{}
	}
	if name != "" || d.UUID != "" && h.devices[d.Index][0] != string(d.UUID) {
		h.devices[d.Index] = [2]string{string(d.UUID), name}
	}
	return h.devices[d.Index][1]
}

// Cut shortens a name.
func Cut[T ~string](name T) T {
	return T(text.Cut(strings.ToValidUTF8(string(name), "\uFFFD"), maxName))
}

// pseudonymPrefix has passwd(5)'s separator, so that no account has such a name.
const pseudonymPrefix = "user:"

// Pseudonym replaces a user's name, always the same way with the same key, without which it can't be reversed. Other
// names stay.
func Pseudonym(key []byte, user string) string {
	if !IsNamed(user) {
		return user
	}
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte(user))
	return pseudonymPrefix + hex.EncodeToString(sum.Sum(nil)[:6])
}

// IsPseudonym says whether a name is a Pseudonym.
func IsPseudonym(user string) bool { return strings.HasPrefix(user, pseudonymPrefix) }

// IsNamed says whether a name is one user's.
func IsNamed(user string) bool { return user != "" && user != string(Other) && !IsPseudonym(user) }
