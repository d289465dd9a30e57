package caps

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/holdings"
)

// shardHeld is what the leader of a shard published last.
type shardHeld struct {
	number int
	*document
	since    time.Duration // when it was seen first, by the judge's clock
	modified uint64        // the revision of the head
}

// tolerance is for how long holdings count that should have been replaced by later ones.
const tolerance = 5 * time.Second

// MaxEvery is how long the cycles of a shard may be: holdings that are older than three of
// them don't count.
const MaxEvery = 5 * time.Minute

func (s *shardHeld) fresh(now time.Duration) bool {
	return now-s.since <= 3*min(max(0, s.Every), MaxEvery)+tolerance
}

// judgeState is what a judge knows between two decisions. It is pure.
type judgeState struct {
	*settler
	over     overSince
	number   uint64                     // of the last decision
	lastSent map[int]*holdings.Decision // to each shard,
	at       map[int]time.Duration      // and when
}

func newJudgeState(epoch uint64) *judgeState {
	return &judgeState{
		settler: newSettler(epoch), over: make(overSince),
		lastSent: make(map[int]*holdings.Decision), at: make(map[int]time.Duration),
	}
}

// repeatEvery is how often a decision is repeated that has not changed.
const repeatEvery = 2 * time.Second

// decide decides by what the shards hold, of which all are fresh, and returns what is to be
// sent to each of them now.
func (j *judgeState) decide(list []shardHeld, rules holdings.Rules, now time.Duration) map[int]*decision {
	documents, from := make([]*holdings.Shard, len(list)), make(map[int]stamp, len(list))
	for i := range list {
		documents[i], from[list[i].number] = list[i].Shard, list[i].Version
	}
	going := j.mayGo(list)
	rules.Going = going.of(list)
	decisions := holdings.Decide(documents, rules)
	users := looksAtUsers(list, decisions)
	j.over.awaitLooks(users, list, decisions, stamp{j.epoch, j.number + 1}, now)
	going.settle(list, decisions)
	j.over.insist(users, decisions, stamp{j.epoch, j.number + 1})
	due := make(map[int]*decision)
	for i := range list {
		shard, one := list[i].number, &decisions[i]
		if before := j.lastSent[shard]; before != nil && now-j.at[shard] < repeatEvery && same(before, one) {
			continue
		}
		due[shard] = &decision{From: from, Decision: *one}
	}
	if len(due) == 0 {
		return nil
	}
	j.number++
	for shard, d := range due {
		d.Stamp = stamp{j.epoch, j.number}
		j.lastSent[shard], j.at[shard] = &d.Decision, now
		j.noteSent(shard, d.Stamp, &d.Decision)
	}
	return due
}

func same(a, b *holdings.Decision) bool {
	one, err := json.Marshal(a)
	other, failed := json.Marshal(b)
	return err == nil && failed == nil && slices.Equal(one, other)
}
