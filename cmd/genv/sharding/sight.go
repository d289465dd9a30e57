package sharding

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
)

// blindAfter is for how long none of its hosts may answer a process before others may take the
// shard: a switch may fail for a moment.
const blindAfter = 30 * time.Second

// sight is what a process sees of its hosts. It is safe for concurrent use.
type sight struct {
	mu    sync.Mutex
	ready bool      // at least half of them answered in the last cycle
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
		s.ready = 2*answered >= hosts
		switch {
		case answered > 0 || hosts == 0:
			s.none = time.Time{}
		case s.none.IsZero():
			s.none = now
		}
		s.blind = !s.none.IsZero() && now.Sub(s.none) >= blindAfter
	}
}

// get is what was noted last.
func (s *sight) get() (ready, blind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready, s.blind
}
