package top

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
)

// list is a Source of updates and errors; then the context ends.
type list struct {
	items  []any
	cancel context.CancelFunc
}

func (l *list) Next(ctx context.Context) (Update, error) {
	if len(l.items) == 0 {
		l.cancel()
		return Update{}, ctx.Err()
	}
	item := l.items[0]
	l.items = l.items[1:]
	if err, failed := item.(error); failed {
		return Update{}, err
	}
	return Update{Fleet: item.(*live.Fleet)}, nil
}

func plainLines(t *testing.T, options Options, cycles int, items ...any) ([]string, *live.Fleet, error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	options.Source, options.Now = &list{items, cancel}, func() time.Time { return noon }
	var out bytes.Buffer
	fleet, err := Plain(ctx, &out, options, cycles)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	return lines, fleet, err
}

func inCycle(n int) *live.Fleet {
	f := sample()
	f.Cycle = n
	return f
}

func TestPlain(t *testing.T) {
	later, away := inCycle(43), errors.New("the controller doesn't answer")
	later.Hosts[2].GPUs = later.Hosts[2].GPUs[:1]
	later.Hosts = later.Hosts[:4]
	lines, fleet, err := plainLines(t, Options{}, 0, inCycle(0), inCycle(41), inCycle(42), away, away, later)
	require.NoError(t, err)
	require.Equal(t, 43, fleet.Cycle)
	at := "2026-11-20T12:00:00Z "
	require.Equal(t, []string{
		at + "gpu-1: 3 of 8 GPUs free, 1 attached, 1 idle, 2 busy, 1 unknown; memory ?/640G; utilization ?; users alice bob carol",
		at + "gpu-2: 0 of 2 GPUs free, 2 busy; memory 72/160G; utilization 97%; users bob dave; findings: Process 4011 is not running in a GPU environment of user dave: python train.py",
		at + "gpu-3: 2 of 2 GPUs free; memory 0/160G; utilization 0%",
		at + "gpu-4: failed (unreachable): dial tcp 10.0.0.4:22: connect: no route to host; it answered 5m ago",
		at + "gpu-5: failed (): ; it has never answered",
		at + "no new data: the controller doesn't answer; the last data are 2s old",
		at + "new data again",
		at + "gpu-3: 1 of 1 GPUs free; memory 0/80G; utilization 0%",
		at + "gpu-5: not shown any more",
	}, lines)
}

func TestPlainEnds(t *testing.T) {
	lines, fleet, err := plainLines(t, Options{Filter: must(t, "host=gpu-3")}, 1, inCycle(0), inCycle(41), inCycle(42))
	require.NoError(t, err)
	require.Equal(t, 41, fleet.Cycle)
	require.Len(t, lines, 1)
	_, fleet, _ = plainLines(t, Options{Hosts: map[snapshot.Hostname]bool{"gpu-3": true}}, 2, inCycle(41), inCycle(41), inCycle(42), inCycle(43))
	require.Equal(t, 42, fleet.Cycle)
	_, _, err = plainLines(t, Options{}, 1, errors.New("none"))
	require.ErrorContains(t, err, "none")
}

func must(t *testing.T, s string) Filter {
	f, err := ParseFilter(s)
	require.NoError(t, err)
	return f
}

func TestPlainHostileTexts(t *testing.T) {
	for _, s := range hostileTexts {
		lines, _, err := plainLines(t, Options{}, 0, hostile(s))
		require.NoError(t, err)
		require.Len(t, lines, 5)
		for _, line := range lines {
			require.NotContains(t, line, "\x1b")
			require.False(t, strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }), line)
		}
	}
}
