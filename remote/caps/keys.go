package caps

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Store is where holdings and decisions are kept; *etcd.Client is one.
type Store interface {
	Get(ctx context.Context, key string) (*etcd.Entry, error)
	// GetAll reads up to 128 keys at once; nil in the place of one that isn't there.
	GetAll(ctx context.Context, keys ...string) ([]*etcd.Entry, error)
	Keys(ctx context.Context, prefix string) ([]etcd.Entry, error)
	// Write writes up to 128 entries at once, or nothing, and returns etcd.ErrConflict, if the key guard
	// was not created in a revision.
	Write(ctx context.Context, guard string, created uint64, entries ...etcd.Entry) error
}

// JudgeKey is the name of the election of the judge, below the key of the controllers.
func JudgeKey(key string) string { return key + "/caps/judge" }

func holdingsPrefix(key string) string { return key + "/caps/holdings/" }
func holdingsKey(key string, shard int) string {
	return fmt.Sprintf("%s%02d", holdingsPrefix(key), shard)
}

const (
	maxKeys     = 128 // of a request
	partsAtOnce = 2   // of 768 KiB at most, so that the answer arrives in time on a slow line
)

// getAll reads any number of keys, some at a time.
func getAll(ctx context.Context, store Store, atOnce int, keys []string) (entries []*etcd.Entry, err error) {
	for some := range slices.Chunk(keys, atOnce) {
		list, err := store.GetAll(ctx, some...)
		if err != nil {
			return nil, err
		}
		entries = append(entries, list...)
	}
	return entries, nil
}

func partKey(holdings string, part int) string { return fmt.Sprintf("%s/part-%02d", holdings, part) }

func decisionKey(key string, shard int) string {
	return fmt.Sprintf("%s/caps/decision/%02d", key, shard)
}
