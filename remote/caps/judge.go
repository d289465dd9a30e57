package caps

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// JudgeOptions are what a controller needs that may be elected to judge.
type JudgeOptions struct {
	Store Store
	Key   string // of all controllers, such as /genv/lab
	// Shards is how many there are, Guard the key that only the leader of one has made, and
	// Hosts how many hosts are in one: they count as not having answered while nothing is
	// known of the shard.
	Shards int
	Guard  func(shard int) string
	Hosts  func(shard int) int
	// Rules are those of the policy now; see enforce.CapRules.
	Rules func() holdings.Rules
	// Epoch is the revision in which this controller was elected judge, in the election of
	// JudgeKey; 0 while it isn't the judge.
	Epoch func() uint64
	// Clock never goes back, and goes on while the machine sleeps.
	Clock func() time.Duration
}

// Judge decides for all shards while it is elected.
type Judge struct {
	JudgeOptions
	reader reader
	state  *judgeState // nil while it isn't elected

	mu     sync.Mutex
	status JudgeStatus
}

// JudgeStatus is what a judge knows.
type JudgeStatus struct {
	Elected bool
	Missing []int // the shards that are missing
	// Err is why decisions can't be made or written, or what holdings don't count; nil for nothing.
	Err error
}

// NewJudge returns a Judge that does nothing until Run.
func NewJudge(options JudgeOptions) *Judge {
	return &Judge{JudgeOptions: options, reader: reader{known: make(map[int]*shardHeld), tried: make(map[int]tried)}}
}

// Status is what is known now. It is safe for concurrent use.
func (j *Judge) Status() JudgeStatus {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.status
}

// Run decides until ctx ends.
func (j *Judge) Run(ctx context.Context) {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		status := j.step(ctx)
		j.mu.Lock()
		j.status = status
		j.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// step decides once, if this controller is the judge.
func (j *Judge) step(ctx context.Context) JudgeStatus {
	epoch := j.Epoch()
	if epoch == 0 {
		j.state = nil
		return JudgeStatus{}
	}
	if j.state == nil || j.state.epoch != epoch {
		j.state = newJudgeState(epoch)
	}
	list, err := j.reader.read(ctx, &j.JudgeOptions)
	if err != nil {
		return JudgeStatus{Elected: true, Err: err}
	}
	rules, status := j.Rules(), JudgeStatus{Elected: true}
	for shard := range j.Shards {
		missing := !slices.ContainsFunc(list, func(one shardHeld) bool { return one.number == shard })
		status.Err = errors.Join(status.Err, j.reader.problem(shard, missing))
		if missing && j.Hosts(shard) > 0 {
			status.Missing = append(status.Missing, shard)
			rules.Missing += j.Hosts(shard)
		}
	}
	status.Err = errors.Join(status.Err, j.send(ctx, epoch, j.state.decide(list, rules, j.Clock())))
	return status
}

// send writes decisions to etcd, many at once.
func (j *Judge) send(ctx context.Context, epoch uint64, decisions map[int]*decision) (failed error) {
	var entries []etcd.Entry
	for _, shard := range slices.Sorted(maps.Keys(decisions)) {
		value, err := decisions[shard].encode()
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		entries = append(entries, etcd.Entry{Key: decisionKey(j.Key, shard), Value: value})
	}
	guard := election.LeaderKey(JudgeKey(j.Key))
	for len(entries) > 0 {
		n := fitting(entries)
		failed = errors.Join(failed, j.Store.Write(ctx, guard, epoch, entries[:n]...))
		entries = entries[n:]
	}
	return failed
}

// fitting is how many of some entries go into a request: at least one.
func fitting(entries []etcd.Entry) (n int) {
	for size := 0; n < min(len(entries), maxKeys); n++ {
		if size += len(entries[n].Value); n > 0 && size > maxPart {
			break
		}
	}
	return n
}
