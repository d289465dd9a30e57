package election_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The member of etcd that is asked first hangs: another one is asked after a second, and has time to
// answer, so that the next leader doesn't wait for the end of the lease.
func TestAResignationThatTakesASecondMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{slow: time.Millisecond}
		e, stop := run(c)
		<-e.Changed()
		require.True(t, e.Leads())
		c.set(func() { c.slow = 1500 * time.Millisecond })
		begun := time.Now()
		stop()
		require.LessOrEqual(t, time.Since(begun), 2*time.Second)
		require.Nil(t, c.key, "it resigned")
	})
}
