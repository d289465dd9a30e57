package sharding

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/shards"
)

// What fails is asked again each second, and logged once. The key of a run that was killed is there
// for some seconds, which is no failure of etcd.
func TestAFailureOfEtcdIsLoggedOnce(t *testing.T) {
	var (
		taken   = fmt.Errorf("shards: %w", shards.ErrTaken)
		away    = errors.New("connection refused")
		refused = &etcd.Error{Code: 7, Message: "permission denied"}
	)
	const (
		waits   = "this controller joins when the key of its earlier run has expired, within a few seconds"
		joined  = "this controller has joined the others"
		silent  = "etcd doesn't answer: the shards stay as they are"
		refuses = "etcd refuses what this controller asks: the shards stay as they are"
		answers = "etcd answers again"
	)
	for _, c := range []struct {
		name   string
		errs   []error
		logged []string
	}{
		{"a start after a kill", []error{taken, taken, nil, away, nil}, []string{waits, joined, silent, answers}},
		{"etcd fails before it has joined", []error{taken, away, nil}, []string{waits, silent, joined}},
		{"etcd is away", []error{away, away, away, nil}, []string{silent, answers}},
		{"etcd is away twice", []error{away, nil, away, away, nil}, []string{silent, answers, silent, answers}},
		{"the password was changed", []error{refused, refused, away, refused, nil}, []string{refuses, silent, refuses, answers}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			r := &run{Options: Options{Log: zerolog.New(&log).Level(zerolog.WarnLevel)}}
			for _, err := range c.errs {
				r.etcdFailed(err)
			}
			var logged []string
			for line := range strings.Lines(log.String()) {
				_, message, _ := strings.Cut(line, `"message":"`)
				logged = append(logged, strings.TrimSuffix(message, "\"}\n"))
			}
			require.Equal(t, c.logged, logged)
		})
	}
}
