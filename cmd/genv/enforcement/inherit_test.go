package enforcement

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/remote/controller/handover"
	"github.com/seed-3119e985/genv/remote/controller/statedir"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/operator"
)

// etcd elects a controller, and then doesn't answer for a while: before it acts, the new leader knows that
// operators had everything held.
func TestAHoldThatIsReadLate(t *testing.T) {
	m := mailtest.Start(t)
	for silent, held := range map[int]bool{0: true, 1: true, 5: true, 1000: false} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{entries: map[string]etcd.Entry{}}
			l := electedLoop(electedPart(t, s), m)
			defer l.close()
			l.part.follower = handover.Follower{Store: s, Key: electionKey, Now: time.Now, Clock: election.SinceBoot}
			before := l.current.Memory
			l.save(&before)()
			require.NoError(t, l.part.follower.Poll(t.Context()), "before the hold")
			before.Operator.Hold = &operator.OnHold{Since: time.Now(), By: "ann", Reason: "a test"}
			l.save(&before)()
			s.silent = silent
			var err error
			l.memory.store, err = statedir.Open(t.TempDir()) // of a controller that has not led
			require.NoError(t, err)
			memory := l.inherit()
			require.Equal(t, held, memory.Operator.Hold != nil, silent)
		})
	}
}
