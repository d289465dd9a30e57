package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPatience(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		0: 30 * time.Second, time.Second: 10 * time.Second, 10 * time.Second: 10 * time.Second,
		20 * time.Second: 20 * time.Second, time.Hour: 30 * time.Second,
	} {
		require.Equal(t, want, answerTimeout(interval, 30*time.Second), "interval %s", interval)
	}
}
