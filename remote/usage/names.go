package usage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Bounds of what is counted by itself: hosts, and users who write to state files, can make
// names up, and each is stored.
const (
	maxUsers        = 20_000
	maxUsersPerHost = 256 // that a host is the first to have
	maxModels       = 256
	maxName         = 64 // bytes
)

// Other is the user who has what the users beyond the bounds have.
const Other snapshot.Username = "(other)"

// known are the names that are counted by themselves.
type known struct {
	users   map[snapshot.Username]struct{}
	models  map[string]struct{}
	perHost map[snapshot.Hostname]*hostNames
}

type hostNames struct {
	known      *known
	introduced int // users
	devices    map[snapshot.DeviceIndex]namedDevice
}

// namedDevice is which GPU an index was when its model was reported last.
type namedDevice struct {
	uuid  snapshot.GPUUUID
	model string
}

func newKnown() known {
	return known{
		users: make(map[snapshot.Username]struct{}), models: make(map[string]struct{}),
		perHost: make(map[snapshot.Hostname]*hostNames),
	}
}

func (k *known) of(host snapshot.Hostname) *hostNames {
	h := k.perHost[host]
	if h == nil {
		h = &hostNames{known: k, devices: make(map[snapshot.DeviceIndex]namedDevice)}
		k.perHost[host] = h
	}
	return h
}

// user is the name of a user, or Other beyond the bounds.
func (h *hostNames) user(name snapshot.Username) snapshot.Username {
	name = cut(name)
	if IsPseudonym(string(name)) {
		return Other // a host made it up
	}
	if _, found := h.known.users[name]; found || name == "" {
		return name
	}
	if len(h.known.users) >= maxUsers || h.introduced >= maxUsersPerHost {
		return Other
	}
	h.introduced++
	h.known.users[name] = struct{}{}
	return name
}

// model is the model of a device: the last one that was reported of the same GPU, if it isn't now.
func (h *hostNames) model(d *snapshot.Device) string {
	name := cut(d.Name)
	if _, found := h.known.models[name]; !found && name != "" {
		if len(h.known.models) >= maxModels {
			return ""
		}
		h.known.models[name] = struct{}{}
	}
	if known := h.devices[d.Index]; name != "" || d.UUID != "" && known.uuid != d.UUID {
		h.devices[d.Index] = namedDevice{d.UUID, name}
	}
	return h.devices[d.Index].model
}

// cut bounds a name. Two that differ only behind that are one.
func cut[T ~string](name T) T { return T(text.Cut(string(name), maxName)) }

// pseudonymPrefix begins the names that stand for users if their names are not kept. It has a colon, which separates
// the fields of passwd(5): no account can have such a name. One that a host claims counts as Other.
const pseudonymPrefix = "user:"

// Pseudonym is the name that replaces a user's: with the same key always the same one. With the
// key the user can be found out, and without it not. Names that are not those of one user stay.
func Pseudonym(key []byte, user string) string {
	if !IsNamed(user) {
		return user
	}
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte(user))
	return pseudonymPrefix + hex.EncodeToString(sum.Sum(nil)[:6])
}

// IsPseudonym reports whether a name replaces that of a user, or of users, for privacy.
func IsPseudonym(user string) bool { return strings.HasPrefix(user, pseudonymPrefix) }

// IsNamed reports whether a name is that of one user.
func IsNamed(user string) bool { return user != "" && user != string(Other) && !IsPseudonym(user) }
