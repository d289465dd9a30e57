package replay_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/recording/replay"
	"github.com/seed-3119e985/genv/remote/recording/simulated"
	"github.com/seed-3119e985/genv/snapshot"
)

// shards are the recordings of two controllers of which each judges half of a fleet, and between
// which caps are decided together.
func shards(t *testing.T, text string, cycles int) (files [2][]byte) {
	fleet := simulated.New(7, 6, 4, noon)
	file := parse(t, text)
	as := recording.PolicyOf(file)
	order := make(map[snapshot.Hostname]int)
	for i := range fleet.Hosts {
		order[fleet.Hosts[i].Name] = i
	}
	var out [2]bytes.Buffer
	var writers [2]*recording.Writer
	var memories [2]enforce.Memory
	var decided [2]*holdings.Decision // none is known at first
	for i := range writers {
		writers[i] = recording.NewWriter(&out[i], recording.Header{Every: time.Minute})
	}
	for number := range cycles {
		now := noon.Add(time.Duration(number) * time.Minute)
		fleet.Change(now, 6)
		var held [2]*holdings.Shard
		for i := range writers {
			in := recording.Input{Before: memories[i], Judgement: recording.Judgement{
				Run: "run", Number: number + 1, Time: now, Policy: as, Cluster: snapshot.Cluster{Hosts: fleet.Cluster().Hosts[3*i : 3*i+3]},
				Shard: &enforce.Shard{Order: order, Decision: decided[i]},
			}}
			var plan enforce.Plan
			var events []enforce.Event
			plan, in.After, events, held[i] = enforce.JudgeShard(file, in.Cluster, in.Before, now, *in.Shard)
			in.Digest, memories[i] = recording.DigestOf(&plan, events), in.After
			require.NoError(t, writers[i].Add(&in))
		}
		decisions := holdings.Decide(held[:], enforce.CapRules(file, now))
		decided = [2]*holdings.Decision{&decisions[0], &decisions[1]}
	}
	for i := range writers {
		require.NoError(t, writers[i].Close())
		files[i] = out[i].Bytes()
	}
	return files
}

// What was decided about caps for a shard is recorded: it is judged as it was, and the same caps
// find the same. Others find no user over a cap, which is said.
func TestShards(t *testing.T) {
	t.Parallel()
	files := shards(t, patient, 60)
	var both, without replay.Result
	for _, file := range files {
		one := try(t, parse(t, patient), noon, file)
		both.Add(&one)
		other := try(t, parse(t, lenient), noon, file)
		without.Add(&other)
	}
	require.Equal(t, 120, both.Judgements)
	require.Zero(t, both.Different)
	require.True(t, both.Shard)
	require.Len(t, both.Policies, 1)
	require.Equal(t, both.Was, both.Would)
	require.Equal(t, both.WasTotal, both.WouldTotal)
	capped := 0
	for key, counts := range both.Was {
		if key.Rule == enforce.RuleMaxDevicesPerUser {
			capped += counts.Found
		}
	}
	require.Positive(t, capped)
	require.Zero(t, without.Different)
	require.Zero(t, without.WouldTotal)
	require.Equal(t, both.WasTotal, without.WasTotal)
}
