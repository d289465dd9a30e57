package proc

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// TestQuotas: each account has one, and the person as whom this runs a larger one.
func TestQuotas(t *testing.T) {
	quotas, self := Quotas{}, snapshot.UID(os.Geteuid())
	other := quotas.Of(Payer{UID: self + 1})
	require.Same(t, other, quotas.Of(Payer{UID: self + 1}))
	require.NotSame(t, other, quotas.Of(Payer{UID: self + 1, Container: "c"}))
	require.Equal(t, maxReadTime, other.left(maxReadTime))
	require.Equal(t, maxReadTime, quotas.Of(Payer{}).left(maxReadTime), "root's may be anybody's")
	if self != 0 {
		require.Equal(t, 10*maxReadTime, quotas.Of(Payer{UID: self}).left(maxReadTime))
	}
	other.spent = time.Hour
	require.Zero(t, other.left(maxNodeTime))
	require.Equal(t, time.Second, (*Quota)(nil).left(time.Second))
}
