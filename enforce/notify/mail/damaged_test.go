package mail

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify/texts"
	"github.com/seed-3119e985/genv/snapshot"
)

// A memory from etcd or from the disk may be damaged: a user without anything is no reason to
// crash, and have the next leader crash, too.
func TestADamagedMemoryTakesMore(t *testing.T) {
	m := &Memory{Users: map[snapshot.Username]*Person{"bob": nil}}
	require.True(t, m.Add("ann", texts.Finding{Host: "gpu-01"}, Rules{}, time.Unix(0, 0)))
}
