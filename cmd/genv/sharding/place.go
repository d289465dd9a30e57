package sharding

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/systemd"
	"github.com/seed-3119e985/genv/remote/shards"
)

// place starts and ends processes, so that those run which should.
func (r *run) place() {
	r.mu.Lock()
	seen := r.seen
	r.mu.Unlock()
	if seen == nil {
		return
	}
	wanted := make(map[int]bool)
	for _, shard := range r.placement.Decide(r.Clock(), seen) {
		wanted[shard] = r.with[shard] && !r.replaced[shard]
	}
	var self shards.Member
	for _, shard := range slices.Sorted(maps.Keys(r.processes)) {
		switch p := r.processes[shard]; {
		case !wanted[shard] && !p.stopping:
			p.stop()
			r.say("ends", shard, seen)
		case p.stuck():
			r.kill(p)
		case wanted[shard] && p.stopping:
			r.replace(p, seen)
		case !p.stopping:
			r.logBlind(p, p.sight.addTo(&self, shard))
		}
	}
	self.Left = slices.DeleteFunc(slices.Sorted(maps.Keys(r.replaced)), func(shard int) bool { return !r.with[shard] })
	r.members.Set(&self)
	for shard := range wanted {
		if f := r.failures[shard]; wanted[shard] && r.processes[shard] == nil && (f == nil || !time.Now().Before(f.until)) {
			r.begin(shard, seen)
		}
	}
	systemd.Notify(r.Log, fmt.Sprintf("STATUS=runs %d of %d shards, %d of them ready; %d controllers", len(r.processes), r.Count, len(self.Ready), len(seen.Members)))
}

// logBlind logs that the hosts of a shard don't answer, and that they do again.
func (r *run) logBlind(p *process, blind bool) {
	switch {
	case blind && !p.blind:
		r.Log.Warn().Int("shard", p.shard).Msg("no host of the shard answers this controller. If hosts answer another controller, that one gets the shard")
	case !blind && p.blind:
		log := r.Log.Level(zerolog.InfoLevel)
		log.Info().Int("shard", p.shard).Msg("hosts of the shard answer again")
	}
	p.blind = blind
}

// resignsWithin is by when a process that was asked to end leads its shard no more.
const resignsWithin = 5 * time.Second

// replace ends a process that waits for its reports, which may take an hour, if this controller has
// the shard again and no controller leads it: a new process can't have its folder and sockets before.
// Hosts finish what they were sent, unless a later leader replaced this one.
func (r *run) replace(p *process, seen *shards.Seen) {
	if p.killed || slices.Contains(seen.Led, p.shard) || time.Since(p.asked) < resignsWithin {
		return
	}
	r.Log.Warn().Int("shard", p.shard).Msg("this controller has the shard again: its earlier process, which waits for reports, is ended. What these reports did isn't recorded")
	p.killed = true
	p.signal(os.Kill)
}

// kill kills a process that is stuck. In the kernel, such a process may stay for a while.
func (r *run) kill(p *process) {
	if !p.killed {
		r.Log.Error().Int("shard", p.shard).Msg("the process of the shard is stuck: it is killed")
	}
	p.killed = true
	p.signal(os.Kill)
}

func (r *run) begin(shard int, seen *shards.Seen) {
	p, err := r.start(shard)
	if err != nil {
		r.failed(shard, err)
		return
	}
	r.processes[shard], r.begun[shard] = p, true
	r.say("starts", shard, seen)
}

func (r *run) say(what string, shard int, seen *shards.Seen) {
	log := r.Log.Level(zerolog.InfoLevel)
	log.Info().Int("shard", shard).Int("controllers", len(seen.Members)).Msg("the process of the shard " + what)
}
