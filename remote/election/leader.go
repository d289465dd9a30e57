package election

import (
	"context"
	"encoding/json"
	"time"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Candidate is a controller that takes part in an election, as the others see it.
type Candidate struct {
	ID   string `json:"id"`   // the same after a restart
	Name string `json:"name"` // for people
}

// Leader is the controller that leads, as its key says.
type Leader struct {
	Candidate
	Since time.Time `json:"since"` // by its own clock
	// Policy is the same for equal policies, and empty if it isn't known.
	Policy string `json:"policy,omitempty"`
}

const schema = "genv.election/1"

type storedLeader struct {
	Schema string `json:"schema"`
	Leader
}

func encode(l Leader) ([]byte, error) { return json.Marshal(storedLeader{schema, l}) }

// decode reads the value of a key. Whatever is there, somebody leads: the name is for people.
func decode(value []byte) Leader {
	var c storedLeader
	if err := json.Unmarshal(value, &c); err != nil || c.Schema != schema {
		return Leader{Candidate: Candidate{Name: "a controller of another version"}}
	}
	return c.Leader
}

// LeaderKey is the key that only a leader has made.
func LeaderKey(key string) string { return key + "/leader" }

// LeaderOf is what the key of the leader says; nil if no controller leads. The
// epoch is that of the leader, and the cluster is etcd's.
func LeaderOf(ctx context.Context, c *etcd.Gateway, key string) (leader *Leader, epoch, cluster uint64, err error) {
	entry, cluster, err := c.Look(ctx, LeaderKey(key))
	if err != nil || entry == nil {
		return nil, 0, cluster, err
	}
	leads := decode(entry.Value)
	return &leads, entry.Created, cluster, nil
}
