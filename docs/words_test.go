package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// word is a line of the glossary: the word, and the type, package or document that it names.
var word = regexp.MustCompile(`(?m)^- \*\*([\w ]+)\*\* \(` + "`([^`]+)`" + `\): `)

// TestGlossary checks that the words of architecture.md are few, that each is there once, and that what they name
// exists.
func TestGlossary(t *testing.T) {
	s, seen := &source{t: t, types: map[string]*declared{}, constants: map[string]string{}}, map[string]bool{}
	for _, m := range word.FindAllStringSubmatch(section(t, "Words"), -1) {
		require.False(t, seen[m[1]], "%s has two meanings", m[1])
		seen[m[1]] = true
		if dir, name, typed := strings.Cut(m[2], "."); typed && name != "md" {
			d := s.find(dir, name)
			require.True(t, d != nil && d.expr != nil, "%s: the type %s doesn't exist", m[1], m[2])
			continue
		}
		require.FileExists(t, existing(m[2]), m[1])
	}
	require.Greater(t, len(seen), 40)
	require.LessOrEqual(t, len(seen), 70)
}

// TestWhereToAdd checks that the files and folders of the table exist.
func TestWhereToAdd(t *testing.T) {
	for _, m := range regexp.MustCompile("`([\\w.-]+/[\\w./-]+)`").FindAllStringSubmatch(section(t, "Where to add something"), -1) {
		if !strings.Contains(m[1], "NAME") {
			require.FileExists(t, existing(m[1]), m[1])
		}
	}
}

// TestSteps checks that each step of a cycle is a function in one of the files that the table names.
func TestSteps(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| (`[^|]+) \\|[^|]*\\| (`[^|]+) \\|$").FindAllStringSubmatch(section(t, "The heart"), -1)
	require.Greater(t, len(rows), 5)
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, row := range rows {
		code := ""
		for _, file := range quoted.FindAllStringSubmatch(row[2], -1) {
			path := file[1]
			if !strings.Contains(path, "/") {
				path = "remote/controller/" + path
			}
			data := proctest.ReadFile(t, filepath.Join("..", path))
			code += string(data)
		}
		for _, step := range quoted.FindAllStringSubmatch(row[1], -1) {
			require.Regexp(t, `func (\([^)]*\) )?`+step[1]+`\(`, code, row[0])
		}
	}
}

// existing is the path of a file, or of one of a folder; the path itself if there is none.
func existing(path string) string {
	for _, below := range []string{"..", "../cmd/genv"} {
		for _, pattern := range []string{"", "*.*", "*/*.*"} {
			if found, _ := filepath.Glob(filepath.Join(below, path, pattern)); len(found) > 0 && !isFolder(found[0]) {
				return found[0]
			}
		}
	}
	return path
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// section is what architecture.md has below a heading.
func section(t *testing.T, heading string) string {
	data := proctest.ReadFile(t, "architecture.md")
	_, after, found := strings.Cut(string(data), "\n## "+heading+"\n")
	require.True(t, found, heading)
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}
