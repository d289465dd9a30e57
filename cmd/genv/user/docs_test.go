package user_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
)

const root = "../../.."

// documents are README.md and the pages of docs, by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)
	all := map[string]string{}
	for _, path := range append(paths, root+"/README.md") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all[path] = string(text)
	}
	return all
}

var (
	link    = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noWord  = regexp.MustCompile(`[^a-z0-9_ -]`)
)

func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(link.ReplaceAllString(text, ""), -1) {
		all = append(all, "#"+strings.ReplaceAll(noWord.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// TestStartUpFilesDoWithoutGenv: the line that people are told to add says nothing once genv is removed.
func TestStartUpFilesDoWithoutGenv(t *testing.T) {
	for path, text := range documents(t) {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "    ") && strings.Contains(line, "genv shell --init") {
				require.Contains(t, line, `command -v genv >/dev/null && eval "$(genv shell --init)"`, path)
			}
		}
	}
}

// TestLinksOfTheDocs: each leads to a file, and to a heading in it.
func TestLinksOfTheDocs(t *testing.T) {
	docs := documents(t)
	for path, text := range docs {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			_, err := os.Stat(target)
			require.NoError(t, err, path)
			if m[2] != "" {
				require.Contains(t, anchors(docs[target]), m[2], "%s: %s", path, m[0])
			}
		}
	}
}

// TestPagesThatAreNamed: the pages that sources, units and examples name are there.
func TestPagesThatAreNamed(t *testing.T) {
	page := regexp.MustCompile(`\bdocs/[a-z0-9-]+\.md\b`)
	named := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".tools", "bin", "dist"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !slices.Contains([]string{".go", ".txt", ".yaml", ".service", ".socket", ".sh", ".md"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, name := range page.FindAllString(string(text), -1) {
			require.FileExists(t, filepath.Join(root, name), path)
			named++
		}
		return err
	}))
	require.Greater(t, named, 50)
}

// TestCommandsOfTheDocs: each command line in them names a command, with flags that it has.
func TestCommandsOfTheDocs(t *testing.T) {
	line := regexp.MustCompile("(?m)(?:^ {4,}(?:\\$ )?|`|sudo |-u genv |/usr/bin/)genv ([a-z][^`#\n;&|]*)")
	flag := regexp.MustCompile(`\s--([a-z0-9-]+)`)
	app := command.New(command.Program{Getenv: os.Getenv}, genvtest.Commands)
	checked := 0
	for path, text := range documents(t) {
		for _, m := range line.FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", ""), -1) {
			cmd := &cli.Command{Subcommands: app.Commands}
			for word := range strings.FieldsSeq(m[1]) {
				if i := slices.IndexFunc(cmd.Subcommands, func(c *cli.Command) bool { return c.HasName(word) }); i >= 0 {
					cmd = cmd.Subcommands[i]
				}
			}
			if words := strings.Fields(m[1]); slices.Contains([]string{"run", "lock", "docker", "container-runtime"}, words[0]) {
				continue // what follows is of the program that it runs
			}
			require.NotEmpty(t, cmd.Name, "%s: genv %s", path, m[1])
			for _, f := range flag.FindAllStringSubmatch(m[1], -1) {
				require.True(t, f[1] == "help" || command.Takes(cmd, f[1]), "%s: genv %s", path, m[1])
			}
			checked++
		}
	}
	require.Greater(t, checked, 100)
}
