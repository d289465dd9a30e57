package election

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Registration is what a controller says about itself to the others, while it runs.
type Registration struct {
	Candidate
	Host    string    `json:"host"` // on which it runs, by that host's own name
	PID     int       `json:"pid"`
	Version string    `json:"version"` // of genv
	Since   time.Time `json:"since"`   // since when it runs; this and Cycled are by its own clock
	Cycled  time.Time `json:"cycled,omitzero"`
	// Interval is the time from cycle to cycle, in seconds.
	Interval float64 `json:"interval,omitempty"`
	// Hosts is how many hosts it has. HostsDigest and Policy are the same for the same hosts and
	// for equal policies, and empty from an older genv.
	Hosts       int    `json:"hosts,omitempty"`
	HostsDigest string `json:"hosts_digest,omitempty"`
	Policy      string `json:"policy,omitempty"`
	// Answered is how many of the Hosts answered in the last cycle; nil before one, and from an
	// older genv.
	Answered *int `json:"answered,omitempty"`
	// Lost says that it ended without saying so, or can't reach etcd: it is not in the value.
	Lost bool `json:"-"`
}

const registrationSchema = "genv.election.controller/1"

// stored is the value of a key.
type stored struct {
	Schema string `json:"schema"`
	Registration
}

// registeredPrefix begins the keys of controllers that run, and knownPrefix those of
// controllers that ran: these remain for keepKnown unless a controller ends in order.
func registeredPrefix(key string) string { return key + "/controllers/" }
func knownPrefix(key string) string      { return key + "/known/" }

// name is that of the keys of a controller: a state folder may have been copied to another host.
func (r *Registration) name() string { return r.ID + "@" + r.Host }

// Registry is what Registered asks; *etcd.Client is one.
type Registry interface {
	List(ctx context.Context, prefix string) ([]etcd.Entry, error)
}

// Registered are the controllers of an election that run, and those that are Lost, by their
// names. What can't be read, as of another version, is left out.
func Registered(ctx context.Context, r Registry, key string) ([]Registration, error) {
	known, err := read(ctx, r, knownPrefix(key))
	if err != nil {
		return nil, err
	}
	list, err := read(ctx, r, registeredPrefix(key))
	if err != nil {
		return nil, err
	}
	for _, k := range known {
		if !slices.ContainsFunc(list, func(l Registration) bool { return l.name() == k.name() }) {
			k.Lost = true
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b Registration) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

func read(ctx context.Context, r Registry, prefix string) ([]Registration, error) {
	entries, err := r.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var list []Registration
	for _, e := range entries {
		var s stored
		if json.Unmarshal(e.Value, &s) == nil && s.Schema == registrationSchema && s.name() == strings.TrimPrefix(e.Key, prefix) {
			list = append(list, s.Registration)
		}
	}
	return list, nil
}

// Candidate is a controller that takes part in an election, as the others see it.
type Candidate struct {
	ID   string `json:"id"`   // the same after a restart
	Name string `json:"name"` // for people
}

// Leader is the controller that leads, as its key says.
type Leader struct {
	Candidate
	Since time.Time `json:"since"` // by its own clock
}

const schema = "genv.election/1"

// content is the value of the key.
type content struct {
	Schema string `json:"schema"`
	Leader
}

func encode(l Leader) ([]byte, error) { return json.Marshal(content{schema, l}) }

// LeaderOf is what the key of the leader says; nil if no controller leads. The
// epoch is that of the leader, and the cluster is etcd's.
func LeaderOf(ctx context.Context, c *etcd.Client, key string) (leader *Leader, epoch, cluster uint64, err error) {
	entry, cluster, err := c.Look(ctx, LeaderKey(key))
	if err != nil || entry == nil {
		return nil, 0, cluster, err
	}
	leads := decode(entry.Value)
	return &leads, entry.Created, cluster, nil
}

// decode reads the value of a key. Whatever is there, somebody leads: the name is for people.
func decode(value []byte) Leader {
	var c content
	if err := json.Unmarshal(value, &c); err != nil || c.Schema != schema {
		return Leader{Candidate: Candidate{Name: "a controller of another version"}}
	}
	return c.Leader
}
