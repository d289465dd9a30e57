package shards

import (
	"context"
	"encoding/json"
	"errors"
	"path"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

const schema = "genv.shards.member/1"

// document is what a controller says about itself.
type document struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	Shards int    `json:"shards"`
	Ready  []int  `json:"ready"`
	Left   []int  `json:"left,omitempty"`
	Blind  []int  `json:"blind,omitempty"`
	Seeing []int  `json:"seeing,omitempty"` // older versions ignore it
}

// decode reads what a controller says about itself.
func decode(e *etcd.Entry) (Member, error) {
	var d document
	if err := json.Unmarshal(e.Value, &d); err != nil {
		return Member{}, err
	}
	if d.Schema != schema || d.Shards < 1 || d.Shards > MaxCount || max(len(d.Ready), len(d.Left), len(d.Blind), len(d.Seeing)) > MaxCount {
		return Member{}, errors.New("unknown schema or impossible values")
	}
	return Member{ID: path.Base(e.Key), Name: d.Name, Count: d.Shards, Ready: d.Ready, Left: d.Left, Blind: d.Blind, Seeing: d.Seeing, Joined: e.Created}, nil
}

// membersPrefix begins the keys of the controllers that share hosts with a key.
func membersPrefix(key string) string { return key + "/shards/members/" }

// Lister lists the keys with a prefix; *etcd.Client is one.
type Lister interface {
	List(ctx context.Context, prefix string) ([]etcd.Entry, error)
}

// Present are the controllers that share hosts with this key now; none where hosts aren't divided.
func Present(ctx context.Context, cluster Lister, key string) ([]Member, error) {
	entries, err := cluster.List(ctx, membersPrefix(key))
	return decodeAll(entries), err
}

// decodeAll leaves out what can't be read: a controller of another version takes no shard here.
func decodeAll(entries []etcd.Entry) (members []Member) {
	for i := range entries {
		if member, err := decode(&entries[i]); err == nil {
			members = append(members, member)
		}
	}
	return members
}
