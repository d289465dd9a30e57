package enforcement

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// The member of etcd that is asked first hangs: the memory is kept by the one that is asked after a second.
func TestAMemoryThatTakesASecondMember(t *testing.T) {
	m := mailtest.Start(t)
	synctest.Test(t, func(t *testing.T) {
		s := &far{store: &store{entries: map[string]etcd.Entry{}}}
		l := electedLoop(electedPart(t, s.store), m)
		defer l.close()
		l.part.publisher.Store = s
		for takes, kept := range map[time.Duration]bool{1500 * time.Millisecond: true, time.Hour: false} {
			s.takes = takes
			begun := time.Now()
			err := l.publish(&l.current.Memory)()
			require.Equal(t, kept, err == nil, "%s: %v", takes, err)
			require.LessOrEqual(t, time.Since(begun), 2*time.Second, takes)
		}
	})
}
