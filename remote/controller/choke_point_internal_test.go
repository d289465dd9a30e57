package controller

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What changes a host or is shown to its users has one way to it: dispatcher.send
// delivers a visit, and only a visit uses the methods of a Link that do so.
func TestHostsAreChangedFromOnePlace(t *testing.T) {
	callers := map[string][]string{}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					callers[s.Sel.Name] = append(callers[s.Sel.Name], strings.TrimSuffix(name, ".go"))
				}
				return true
			})
		}
	}
	require.Equal(t, []string{"visit"}, callers["Execute"])
	require.Equal(t, []string{"messages"}, callers["Notify"])
	require.Equal(t, []string{"dispatch"}, callers["deliver"])
}
