package enforce

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoom(t *testing.T) {
	r := Room[string, string]{Max: 3, MaxEach: 2}
	require.False(t, r.Full("a", "alice"))
	r.Add("a", "alice")
	require.False(t, r.Full("a", "alice"))
	r.Add("a", "alice")
	require.True(t, r.Full("a", "alice"))
	require.False(t, r.Full("a", "bob"), "another user there")
	require.False(t, r.Full("b", "alice"), "on another host")
	r.Add("a", "bob")
	require.True(t, r.Full("a", "bob"), "the host has no room for any user")
	require.True(t, r.Full("a", "carol"))
	require.False(t, r.Full("b", "bob"))
}
