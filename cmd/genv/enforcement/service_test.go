package enforcement

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/controller"
)

// A slow cycle, or a long wait, isn't a loop that hangs. After a cycle was judged it only has to be shown.
func TestALoopThatHangs(t *testing.T) {
	const limit = 10 * time.Minute
	for _, c := range []struct {
		name  string
		step  func(*service)
		hangs time.Duration // after which the loop counts as stuck
	}{
		{"it starts", func(*service) {}, stepSlack},
		{"a cycle", func(s *service) { s.step(0) }, limit + stepSlack},
		{"the end of a cycle", func(s *service) { s.step(0); s.status(&controller.Cycle{}) }, stepSlack},
		{"a wait", func(s *service) { s.status(&controller.Cycle{}); s.step(time.Hour) }, time.Hour + stepSlack},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("NOTIFY_SOCKET", "")
			synctest.Test(t, func(t *testing.T) {
				_, s := startService(t.Context(), zerolog.Nop(), false)
				defer s.close()
				s.limit.Store(int64(limit))
				c.step(s)
				time.Sleep(c.hangs - time.Second)
				require.True(t, s.works())
				time.Sleep(2 * time.Second)
				require.False(t, s.works())
			})
		})
	}
}
