package policy_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
)

// TestPage checks docs/policy.md: each recipe is a whole policy, and every setting is described.
func TestPage(t *testing.T) {
	data, err := os.ReadFile("../../docs/policy.md")
	require.NoError(t, err)
	page := string(data)
	recipes := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1)
	require.Len(t, recipes, 11)
	for _, recipe := range recipes {
		parse(t, recipe[1])
	}
	for _, setting := range policy.Default().Explain(enforce.Query{}) {
		require.Contains(t, page, "`"+setting.Key+"`")
	}
}
