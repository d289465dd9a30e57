package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPages(t *testing.T) {
	f := newFleet(20, 8)
	f.judged(usual(f.now)...)
	handler := web.New(f.feed, f.options())
	for _, path := range []string{"/", "/h/gpu-01", "/h/gpu-06", "/u/alice", "/findings", "/?q=alice&free=1"} {
		require.Contains(t, pageOf(t, handler, path), "<main", path)
	}
}
