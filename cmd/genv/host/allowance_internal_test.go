package host

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// TestAllowancesAreRenewed: at once if they are new, and otherwise well before they end.
func TestAllowancesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const two, three = "2", "3"
		var passed []string
		var failure error
		a := &allowances{pass: func(_ context.Context, a service.Allowance) error {
			passed = append(passed, a.By)
			return failure
		}}
		defer a.close()
		say := func(by string) []string {
			passed = nil
			a.renew(&service.Allowance{By: by, ForMS: 60000})
			synctest.Wait()
			return passed
		}
		require.Equal(t, []string{two}, say(two))
		require.Empty(t, say(two))
		require.Equal(t, []string{three}, say(three))
		time.Sleep(19 * time.Second)
		require.Empty(t, say(three))
		time.Sleep(time.Second)
		require.Equal(t, []string{three}, say(three))
		failure = service.ErrNotRunning
		require.Equal(t, []string{two}, say(two))
		require.Equal(t, []string{two}, say(two), "the service may have started")
		a.renew(nil)
		synctest.Wait()
		require.Len(t, passed, 1)
	})
}

// TestAnAllowanceWaitsForNothing: a service that hangs delays no snapshot.
func TestAnAllowanceWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		a := &allowances{pass: func(ctx context.Context, _ service.Allowance) error {
			calls++
			<-ctx.Done()
			return ctx.Err()
		}}
		defer a.close()
		began := time.Now()
		a.renew(&service.Allowance{})
		a.renew(&service.Allowance{By: "x"})
		require.Equal(t, began, time.Now())
		time.Sleep(passWithin)
		synctest.Wait()
		require.Equal(t, 1, calls, "one at a time")
		a.renew(&service.Allowance{By: "x"})
		synctest.Wait()
		require.Equal(t, 2, calls)
	})
}
