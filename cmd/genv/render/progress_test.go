package render

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestProgress: the line is there while people wait, whoever they wait for, and
// never afterwards.
func TestProgress(t *testing.T) {
	const second, none = time.Second + time.Millisecond, ""
	line := func(text string) string { return "\r\x1b[K" + text + " hosts …" }
	const gone = "\r\x1b[K"
	type step struct {
		wait time.Duration
		done int    // what it is told; -1 for nothing
		want string // what is written by then
	}
	for name, steps := range map[string][]step{
		"all answer at once":            {{0, 0, none}, {0, 2, none}, {0, 3, none}, {second, 3, none}},
		"no host answers":               {{0, 0, none}, {second, -1, line("0 of 3")}, {0, 0, gone}},
		"all but one answer at once":    {{0, 0, none}, {0, 2, none}, {second, -1, line("2 of 3")}, {0, 3, gone}},
		"they come one by one":          {{0, 0, none}, {second, 1, line("0 of 3") + line("1 of 3")}, {0, 2, line("2 of 3")}, {0, 3, gone}},
		"a late word of an earlier one": {{0, 0, none}, {0, 3, none}, {0, 1, none}, {second, 2, none}},
		"the next fan-out":              {{0, 0, none}, {0, 3, none}, {second, 0, none}, {0, 1, none}, {second, 2, line("1 of 3") + line("2 of 3")}, {0, 3, gone}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				p := &Progress{out: &out}
				written := func() string {
					p.mu.Lock()
					defer p.mu.Unlock()
					defer out.Reset()
					return out.String()
				}
				for i, s := range steps {
					time.Sleep(s.wait)
					synctest.Wait()
					if s.done >= 0 {
						p.Update(s.done, 3)
					}
					require.Equal(t, s.want, written(), "step %d", i)
				}
				p.End()
				written()
				time.Sleep(second)
				synctest.Wait()
				require.Empty(t, written(), "after the end")
			})
		})
	}
}

// TestNote: a note goes when the next fan-out begins, and none is written off a terminal.
func TestNote(t *testing.T) {
	var out strings.Builder
	p := &Progress{out: &out}
	p.Note("2 of 8 GPUs free")
	p.Note("3 of 8 GPUs free")
	p.Update(0, 3)
	p.Update(3, 3)
	p.Note("last")
	p.End()
	require.Equal(t, "\r\x1b[K2 of 8 GPUs free\r\x1b[K\r\x1b[K3 of 8 GPUs free\r\x1b[K\r\x1b[Klast\r\x1b[K", out.String())
	NewProgress(&out).Note("x")
	require.NotContains(t, out.String(), "x")
}
