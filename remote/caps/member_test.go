package caps

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// fixed is a Store with one value under each key.
type fixed []byte

func (f fixed) Get(_ context.Context, key string) (*etcd.Entry, error) {
	return &etcd.Entry{Key: key, Value: f, Modified: 5}, nil
}
func (fixed) Keys(context.Context, string) ([]etcd.Entry, error)         { return nil, nil }
func (fixed) Write(context.Context, string, uint64, ...etcd.Entry) error { return nil }

func TestADecisionThatCanNotBeReadStaysAnError(t *testing.T) {
	m := NewMember(MemberOptions{Store: fixed("garbage"), Key: "/k", Epoch: func() uint64 { return 1 }, Clock: func() time.Duration { return time.Hour }})
	require.Error(t, m.read(t.Context()))
	require.Error(t, m.read(t.Context()), "it is still garbage, and no cap is applied")
}
