package sharding

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/remote/shards"
)

// blindAfter is for how long none of its hosts may answer a process before others may take the
// shard: a switch may fail for a moment.
const blindAfter = 30 * time.Second

// sight is what a process sees of its hosts. It is safe for concurrent use.
type sight struct {
	mu    sync.Mutex
	ready bool      // at least half of them answered in the last cycle
	some  bool      // at least one of them did
	none  time.Time // since when none answered; zero if some did, or there are none
	blind bool      // that was so for blindAfter
}

// note takes in a notification.
func (s *sight) note(notice []byte, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range bytes.Lines(notice) {
		var answered, hosts int
		if n, _ := fmt.Sscanf(string(line), enforcement.AnsweredVariable+"=%d/%d", &answered, &hosts); n != 2 {
			continue
		}
		s.ready, s.some = 2*answered >= hosts, answered > 0
		switch {
		case answered > 0 || hosts == 0:
			s.none = time.Time{}
		case s.none.IsZero():
			s.none = now
		}
		s.blind = !s.none.IsZero() && now.Sub(s.none) >= blindAfter
	}
}

// addTo has a controller say of a shard what was noted last, and reports whether no host answers.
func (s *sight) addTo(self *shards.Member, shard int) (blind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready {
		self.Ready = append(self.Ready, shard)
	}
	if s.some {
		self.Seeing = append(self.Seeing, shard)
	}
	if s.blind {
		self.Blind = append(self.Blind, shard)
	}
	return s.blind
}
