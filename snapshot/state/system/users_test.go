package system_test

import (
	"context"
	"errors"
	"os"
	"os/user"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// USER and LOGNAME are claims: not even for the user of this very process do
// they count.
func TestUsernameIsNotTakenFromTheEnvironment(t *testing.T) {
	t.Setenv("USER", "somebody-else")
	t.Setenv("LOGNAME", "somebody-else")
	users := system.Users{Getent: func(context.Context, string) ([]byte, error) { return nil, errors.New("exit status 2") }}
	got := users.Username(t.Context(), snapshot.UID(os.Getuid()))
	require.NotEqual(t, snapshot.Username("somebody-else"), got)
	if root, err := user.LookupId("0"); err == nil && root.Username != "somebody-else" {
		require.EqualValues(t, root.Username, users.Username(t.Context(), 0))
	}
	require.Empty(t, users.Username(t.Context(), 4294967000))
}
