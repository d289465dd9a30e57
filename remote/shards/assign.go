package shards

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// MaxCount is how many shards there may be.
const MaxCount = 64

// Of is the shard of a host by its name in hosts.yaml, from 0 on, of count.
func Of(host string, count int) int {
	return int(score("host", host) % uint64(count)) //nolint:gosec // count is small, and not negative
}

// Ranking is the order in which controllers should have a shard, by their ids. The first one
// has it; if that one goes, the second one has.
func Ranking(shard int, ids []string) []string {
	ranked := slices.Clone(ids)
	name := fmt.Sprint(shard)
	slices.SortFunc(ranked, func(a, b string) int {
		return cmp.Or(cmp.Compare(score(name, b), score(name, a)), cmp.Compare(a, b))
	})
	return ranked
}

// score is a number that is the same on all machines and in all versions.
func score(of, id string) uint64 {
	sum := sha256.Sum256([]byte(of + "\x00" + id))
	return binary.BigEndian.Uint64(sum[:8])
}

// Key is that of the election of a shard; see election.Options.
func Key(key string, shard int) string { return fmt.Sprintf("%s/shards/%02d", key, shard) }
