package caps

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/holdings"
)

// shardHeld is what the leader of a shard said last.
type shardHeld struct {
	number int
	*held
	since time.Duration // when it was seen first, by the judge's clock
}

// tolerance is for how long holdings count that should have been replaced by later ones.
const tolerance = 5 * time.Second

// MaxEvery is how long the cycles of a shard may be: holdings that are older than three of
// them don't count.
const MaxEvery = 5 * time.Minute

func (s *shardHeld) fresh(now time.Duration) bool {
	return now-s.since <= 3*min(max(0, s.Every), MaxEvery)+tolerance
}

// judgement is what a judge knows between two decisions. It is pure.
type judgement struct {
	*settler
	number uint64                     // of the last decision
	said   map[int]*holdings.Decision // to each shard, last,
	at     map[int]time.Duration      // and when
}

func newJudgement(epoch uint64) *judgement {
	return &judgement{settler: newSettler(epoch), said: make(map[int]*holdings.Decision), at: make(map[int]time.Duration)}
}

// repeatEvery is how often a decision is repeated that has not changed.
const repeatEvery = 2 * time.Second

// decide decides by what the shards said, of which all are fresh, and returns what is to be
// told to each of them now.
func (j *judgement) decide(list []shardHeld, rules holdings.Rules, now time.Duration) map[int]*decision {
	documents, from := make([]*holdings.Shard, len(list)), make(map[int]stamp, len(list))
	for i := range list {
		documents[i], from[list[i].number] = list[i].Shard, list[i].Version
	}
	decisions := holdings.Decide(documents, rules)
	j.settle(list, decisions)
	tell := make(map[int]*decision)
	for i := range list {
		shard, one := list[i].number, &decisions[i]
		if before := j.said[shard]; before != nil && now-j.at[shard] < repeatEvery && same(before, one) {
			continue
		}
		tell[shard] = &decision{From: from, Decision: *one}
	}
	if len(tell) == 0 {
		return nil
	}
	j.number++
	for shard, d := range tell {
		d.Stamp = stamp{j.epoch, j.number}
		j.said[shard], j.at[shard] = &d.Decision, now
		j.tell(shard, d.Stamp, &d.Decision)
	}
	return tell
}

func same(a, b *holdings.Decision) bool {
	one, err := json.Marshal(a)
	other, failed := json.Marshal(b)
	return err == nil && failed == nil && slices.Equal(one, other)
}
