package caps

import (
	"context"
	"fmt"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Store is where holdings and decisions are kept; *etcd.Client is one.
type Store interface {
	Get(ctx context.Context, key string) (*etcd.Entry, error)
	Keys(ctx context.Context, prefix string) ([]etcd.Entry, error)
	// Write writes nothing, and returns etcd.ErrConflict, if the key guard was not created in a revision.
	Write(ctx context.Context, guard string, created uint64, entries ...etcd.Entry) error
}

// JudgeKey is the name of the election of the judge, below the key of the controllers.
func JudgeKey(key string) string { return key + "/caps/judge" }

func holdingsPrefix(key string) string { return key + "/caps/holdings/" }
func holdingsKey(key string, shard int) string {
	return fmt.Sprintf("%s%02d", holdingsPrefix(key), shard)
}

func partKey(holdings string, part int) string { return fmt.Sprintf("%s/part-%02d", holdings, part) }

func decisionKey(key string, shard int) string {
	return fmt.Sprintf("%s/caps/decision/%02d", key, shard)
}
