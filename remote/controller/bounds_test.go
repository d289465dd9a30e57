package controller_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
)

// A host that makes up findings, again in every cycle, does not push the history of
// the others out of the log; what is done because of a finding is always recorded.
func TestTheRecordOfAHostIsBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		warn    enforce.Warn
		records int
		last    string
	}{
		"they wait":         {enforce.Warn{Cycles: 3}, enforce.MaxEventsPerHost + 1, "and 744 more findings on this host"},
		"they are acted on": {enforce.Warn{}, 1000, "Process 1099 is not running in a GPU environment (uid 1001)"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			cycleOf(t.Context(), sameUser(t, map[string]int{"a": 1000}).controller(&audit.Log{Path: path}), 1, strict{warn: tt.warn})
			var texts []string
			_, err := audit.Scan(path, func(r *audit.Record) error {
				if r.Kind == audit.KindFinding {
					texts = append(texts, r.Text)
				}
				return nil
			})
			require.NoError(t, err)
			require.Len(t, texts, tt.records)
			require.Equal(t, tt.last, texts[len(texts)-1])
		})
	}
}
