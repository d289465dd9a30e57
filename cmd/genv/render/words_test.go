package render

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAges(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-3 * time.Hour: "now", 0: "now", time.Second: "1 second ago", 59 * time.Second: "59 seconds ago",
		time.Minute: "1 minute ago", 2 * time.Hour: "2 hours ago", 49 * time.Hour: "2 days ago",
	} {
		require.Equal(t, want, Age(d))
	}
}
