package sharding

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/shards"
)

// TestAStartAfterAKill: the key of the run that was killed is there for some seconds, which is
// said once, and is no failure of etcd.
func TestAStartAfterAKill(t *testing.T) {
	var log bytes.Buffer
	r := &run{Options: Options{Log: zerolog.New(&log)}}
	taken := fmt.Errorf("shards: %w", shards.ErrTaken)
	for _, err := range []error{taken, taken, nil, errors.New("refused"), nil} {
		r.etcdFailed(err)
	}
	var said []string
	for line := range strings.Lines(log.String()) {
		_, message, _ := strings.Cut(line, `"message":"`)
		said = append(said, strings.TrimSuffix(message, "\"}\n"))
	}
	require.Equal(t, []string{
		"this controller takes part once that has ended, which takes some seconds", "this controller takes part now",
		"etcd doesn't answer: the shards stay as they are", "etcd answers again",
	}, said)
}
