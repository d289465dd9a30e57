package remote

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUntilNotBusy(t *testing.T) {
	busy := Errorf(Unreachable, "dropped: %w", ErrBusy)
	for name, tt := range map[string]struct {
		errs  []error // of the tries, the last one for all further tries
		tries int
		want  error
	}{
		"not busy":            {[]error{nil}, 1, nil},
		"busy three times":    {[]error{busy, busy, busy, nil}, 4, nil},
		"busy for ever":       {[]error{busy}, busyTries, busy},
		"another error":       {[]error{errors.ErrUnsupported}, 1, errors.ErrUnsupported},
		"busy, then an error": {[]error{busy, errors.ErrUnsupported}, 2, errors.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				begun := time.Now()
				_, err := UntilNotBusy(t.Context(), func() (int, error) {
					tries++
					return 0, tt.errs[min(tries, len(tt.errs))-1]
				})
				require.ErrorIs(t, err, tt.want)
				require.Equal(t, tt.tries, tries)
				require.Less(t, time.Since(begun), 5*time.Second)
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := UntilNotBusy(ctx, func() (int, error) { return 0, busy })
	require.ErrorIs(t, err, busy, "ctx ended")
}

// What a host refuses for now is tried until ctx ends, and nothing else is tried twice.
func TestUntilAdmitted(t *testing.T) {
	full, broken := errors.New("too many sessions"), errors.New("broken")
	for name, tt := range map[string]struct {
		errs    []error // of the tries, the last one for all further tries
		tries   int
		want    error
		atLeast time.Duration
	}{
		"admitted":           {[]error{nil}, 1, nil, 0},
		"full three times":   {[]error{full, full, full, nil}, 4, nil, 260 * time.Millisecond},
		"full, then broken":  {[]error{full, broken}, 2, broken, 0},
		"full until the end": {[]error{full}, 0, full, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				tries, begun := 0, time.Now()
				_, err := UntilAdmitted(ctx, func() (int, error) {
					tries++
					return 0, tt.errs[min(tries, len(tt.errs))-1]
				}, func(err error) bool { return errors.Is(err, full) })
				require.ErrorIs(t, err, tt.want)
				require.GreaterOrEqual(t, time.Since(begun), tt.atLeast)
				if tt.tries > 0 {
					require.Equal(t, tt.tries, tries)
				} else {
					require.InDelta(t, 64, tries, 20, "once a second")
				}
			})
		})
	}
}

// TestTogether: attempts begin at common moments, never later than they are due.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			time.Sleep(17*time.Millisecond + 3*time.Microsecond)
			for _, pause := range []time.Duration{0, time.Millisecond, tick, 250 * time.Millisecond, probePeriod, 16 * time.Minute} {
				got := Together(pause)
				require.LessOrEqual(t, got, pause)
				require.Greater(t, got, pause-tick)
				require.GreaterOrEqual(t, got, time.Duration(0))
				if got > 0 {
					require.Zero(t, time.Now().Add(got).UnixNano()%int64(tick))
				}
			}
		}
	})
}

// TestRefusals: a key that is refused, and ssh(1) that fails, wait for minutes, unless the host was reached before.
func TestRefusals(t *testing.T) {
	for _, class := range []Class{Auth, OpenSSH} {
		err := Errorf(class, "refused")
		var never, before Backoff
		before.Connected()
		for try := range 10 {
			require.GreaterOrEqual(t, never.AfterLogin(err, 0), 90*time.Second)
			if pause := before.AfterLogin(err, 0); try < authRetries {
				require.Less(t, pause, 5*time.Second)
			} else {
				require.GreaterOrEqual(t, pause, 90*time.Second)
			}
		}
	}
}

// A login that a host refuses with a reason is tried again soon: the key may be right.
func TestRefusedWithAReason(t *testing.T) {
	var b Backoff
	for range 10 {
		require.Less(t, b.AfterLogin(Errorf(Auth, "going down: %w", ErrSaidWhy), 0), 45*time.Second)
	}
}
