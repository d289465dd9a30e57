package command_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
)

// wholeApp has all commands.
func wholeApp() *cli.App {
	return command.New(command.Program{Getenv: os.Getenv, Version: "v1"}, genvtest.Commands)
}

// eachPage calls with the page of each visible command.
func eachPage(visit func(cmd *cli.Command, page *command.HelpPage)) {
	var walk func(cmd *cli.Command, name string)
	walk = func(cmd *cli.Command, name string) {
		page := command.PageOf(cmd, name)
		visit(cmd, &page)
		for _, sub := range cmd.Subcommands {
			if !sub.Hidden {
				walk(sub, name+" "+sub.Name)
			}
		}
	}
	walk(command.Root(wholeApp()), "genv")
}

// TestManPages: there is one for each command, and groff has nothing to say about them.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	r := genvtest.Run(t, "man", dir)
	require.Zero(t, r.Code, r.Err)
	written, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	var want []string
	eachPage(func(_ *cli.Command, page *command.HelpPage) {
		want = append(want, filepath.Join(dir, page.FileName()+".1"))
	})
	require.ElementsMatch(t, want, written)
	require.Contains(t, written, filepath.Join(dir, "genv-remote-enforce.1"))
	require.NotContains(t, strings.Join(written, " "), "__complete")
	home := filepath.Join(dir, "genv-home.1")
	for program, arguments := range map[string][]string{
		"groff": append([]string{"-ww", "-man", "-Tutf8", "-P-cbou"}, written...),
		"man":   {"--warnings", "-l", home}, // it takes ten times as long for each page
	} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("%s is not installed: the pages are not checked with it", program)
			continue
		}
		cmd := exec.Command(program, arguments...)
		cmd.Env = append(os.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8", "MAN_KEEP_FORMATTING=")
		var warnings strings.Builder
		cmd.Stderr = &warnings
		out, err := cmd.Output()
		require.NoError(t, err, "%s: %s", program, &warnings)
		require.Empty(t, warnings.String(), program)
		if program == "groff" {
			require.Equal(t, len(written), strings.Count(string(out), "\nSYNOPSIS\n"))
		}
		require.Contains(t, string(out), "$ mkdir"[2:]+" ~/.genv && genv home", "printed as it is to be typed")
	}
}

func TestManPageIsRoff(t *testing.T) {
	page := command.HelpPage{
		Name: "genv x", Usage: `it's a "test" -- with \e and ~^`, Synopsis: ".SH evil",
		Description: []string{".SH evil", "'ne 9", "a `bold` word, and ` alone", "é…"},
		Options:     []command.HelpSection{{Title: "OPTIONS", Rows: []command.Explained{{Name: "--a-b, -a N", Text: `.TH x (default: C:\d)`}}}},
		Examples:    []command.Explained{{Name: `.so /etc/passwd | sed 's/\./-/'`, Text: "reads"}},
	}
	text := page.Man("v1")
	require.Equal(t, golden(t, "testdata/man/escapes.1", text), text)
	for line := range strings.Lines(text) {
		if line[0] == '.' || line[0] == '\'' {
			require.Regexp(t, `^\.(TH|SH|nf|fi|nh|ad l)\b`, line)
			require.NotContains(t, line, "evil")
		}
	}
}

// TestManPageOfHome is a whole page.
func TestManPageOfHome(t *testing.T) {
	dir := t.TempDir()
	require.Zero(t, genvtest.Run(t, "man", dir).Code)
	page, err := os.ReadFile(filepath.Join(dir, "genv-home.1"))
	require.NoError(t, err)
	require.Equal(t, golden(t, "testdata/man/genv-home.1", string(page)), string(page))
}

// golden is the content of a file, which UPDATE_GOLDEN=1 writes.
func golden(t *testing.T, path, now string) string {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(now), 0o644))
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

var startsGenv = regexp.MustCompile(`(^|[ (])genv `)

// TestExamplesOfHelp: the examples are of the command that they explain, and use flags
// that it has.
func TestExamplesOfHelp(t *testing.T) {
	whole := wholeApp()
	eachPage(func(_ *cli.Command, page *command.HelpPage) {
		require.NotEmpty(t, page.Usage, page.Name)
		for _, example := range page.Examples {
			require.NotEmpty(t, example.Text, example.Name)
			starts := startsGenv.FindAllStringIndex(example.Name, -1)
			require.NotEmpty(t, starts, "%s: %s", page.Name, example.Name)
			line := example.Name[starts[len(starts)-1][1]:]
			words := strings.Fields(strings.NewReplacer(")", "", "'", "", `"`, "").Replace(line))
			place := command.PlaceAfter(whole, words)
			require.True(t, strings.HasPrefix("genv "+strings.Join(place.Path(), " "), page.Name), example.Name)
			for i, word := range words {
				if strings.HasPrefix(word, "-") && word != "--" && place.Program() < 0 {
					require.NotNil(t, command.PlaceAfter(whole, words[:i]).Flag(word), "%s: %s", example.Name, word)
				}
			}
		}
	})
}

// TestExitCodesOfTheManual: they are those of docs/daily-work.md.
func TestExitCodesOfTheManual(t *testing.T) {
	document, err := os.ReadFile("../../../docs/daily-work.md")
	require.NoError(t, err)
	dir := t.TempDir()
	require.Zero(t, genvtest.Run(t, "man", dir).Code)
	page, err := os.ReadFile(filepath.Join(dir, "genv.1"))
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(document), "## Exit codes")
	section, _, _ = strings.Cut(section, "\n## ")
	_, status, _ := strings.Cut(string(page), ".SH \"EXIT STATUS\"\n.nf\n")
	status, _, _ = strings.Cut(status, "\n.fi")
	codes := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if code := strings.TrimSpace(cells[min(1, len(cells)-1)]); len(cells) > 2 && strings.Trim(code, "0123456789") == "" {
			require.Regexp(t, "(?m)^"+code+" ", status)
			codes++
		}
	}
	require.Len(t, regexp.MustCompile(`(?m)^\d+ `).FindAllString(status, -1), codes)
}
