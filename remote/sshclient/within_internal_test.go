package sshclient

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// The library can lose a NewSession that begins while the connection ends: it
// never returns. No caller may wait for it forever.
func TestBlockedCallIsAbandoned(t *testing.T) {
	l := &connection{done: make(chan struct{})}
	l.end(errors.New("the peer has gone"))
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	_, err := within(context.Background(), l, func() (struct{}, error) {
		<-release
		return struct{}{}, nil
	})
	require.ErrorContains(t, err, "the peer has gone")
}
