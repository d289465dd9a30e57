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
}

// decode reads what a controller says about itself.
func decode(e *etcd.Entry) (Member, error) {
	var d document
	if err := json.Unmarshal(e.Value, &d); err != nil {
		return Member{}, err
	}
	if d.Schema != schema || d.Shards < 1 || d.Shards > MaxCount || len(d.Ready) > MaxCount || len(d.Left) > MaxCount {
		return Member{}, errors.New("it is of another version")
	}
	return Member{ID: path.Base(e.Key), Name: d.Name, Count: d.Shards, Ready: d.Ready, Left: d.Left, Joined: e.Created}, nil
}

// Present are the controllers that share hosts with this key now; none where hosts aren't divided.
func Present(ctx context.Context, cluster Cluster, key string) ([]Member, error) {
	return NewMembers(MembersOptions{Cluster: cluster, Key: key}).members(ctx)
}
