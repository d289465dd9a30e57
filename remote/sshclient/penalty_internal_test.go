package sshclient

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

func TestPausesGrowByTheirCause(t *testing.T) {
	for class, pause := range pauses {
		var p penalty
		for failure, want := 0, pause.first; failure < 30; failure, want = failure+1, min(2*want, pause.last) {
			before := time.Now()
			p.record(remote.Errorf(class, "no"))
			require.WithinRange(t, p.until, before.Add(want*3/4), time.Now().Add(want*5/4), "%s, failure %d", class, failure)
			require.Equal(t, class, remote.ClassOf(p.standing()))
			require.ErrorContains(t, p.standing(), "tried again in")
		}
		p.record(nil)
		require.NoError(t, p.standing(), "a success forgets it")
	}
	require.GreaterOrEqual(t, pauses[remote.Auth].first, time.Minute, "refused logins wait for minutes")
}

func TestNoPauseForWhatIsNotTheHostsFault(t *testing.T) {
	for _, class := range []remote.Class{remote.Configuration, remote.Cancelled, remote.CommandFailed} {
		var p penalty
		p.record(remote.Errorf(class, "no"))
		require.NoError(t, p.standing(), class)
	}
}

func TestAnotherCauseBeginsAnew(t *testing.T) {
	var p penalty
	for range 10 {
		p.record(remote.Errorf(remote.Unreachable, "no"))
	}
	p.record(remote.Errorf(remote.Timeout, "no"))
	require.Less(t, time.Until(p.until), time.Second)
}

func TestAPauseForAKeyEndsWithKnownHosts(t *testing.T) {
	outdated := false
	var p penalty
	p.record(&keyRefusal{remote.Errorf(remote.HostKey, "%w", errors.New("unknown")), func() bool { return outdated }})
	require.Error(t, p.standing())
	outdated = true
	require.NoError(t, p.standing())
}
