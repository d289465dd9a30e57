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

// Bounds of names, which hosts, and users who write to state files, can make up.
const (
	maxUsers        = 20_000
	maxUsersPerHost = 256 // that a host is the first to have
	maxModels       = 256
	maxName         = 64 // bytes
)

// Other stands for all users beyond the bounds.
const Other snapshot.Username = "(other)"

// Names are the names that are counted by themselves.
type Names struct {
	users  map[snapshot.Username]struct{}
	models map[string]struct{}
	hosts  map[snapshot.Hostname]*hostNames
}

type hostNames struct {
	*Names
	introduced int                                // users
	devices    map[snapshot.DeviceIndex][2]string // the UUID and model of when the model was reported last
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

// Attached counts the devices of a host that are attached to environments of each user.
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

// Label is the name under which a user is counted, if any is.
func (n *Names) Label(user snapshot.Username) (label string, counted bool) {
	user = Cut(user)
	_, counted = n.users[user]
	return string(user), counted
}

func (h *hostNames) user(name snapshot.Username) snapshot.Username {
	name = Cut(name)
	if IsPseudonym(string(name)) {
		return Other // a host made it up
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

// model is the one that was reported last of the same GPU.
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

// Cut bounds a name. Two that differ only in what is cut are one.
func Cut[T ~string](name T) T {
	return T(text.Cut(strings.ToValidUTF8(string(name), "\uFFFD"), maxName))
}

// pseudonymPrefix has a colon, which separates the fields of passwd(5), so that no account can have such a name.
const pseudonymPrefix = "user:"

// Pseudonym is the name that replaces a user's: with the same key always the same one. The user can be found out with
// the key alone. Names that are not those of one user stay.
func Pseudonym(key []byte, user string) string {
	if !IsNamed(user) {
		return user
	}
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte(user))
	return pseudonymPrefix + hex.EncodeToString(sum.Sum(nil)[:6])
}

// IsPseudonym reports whether a name replaces that of a user for privacy.
func IsPseudonym(user string) bool { return strings.HasPrefix(user, pseudonymPrefix) }

// IsNamed reports whether a name is that of one user.
func IsNamed(user string) bool { return user != "" && user != string(Other) && !IsPseudonym(user) }
