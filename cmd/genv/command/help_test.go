package command_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestHelpFitsOnTheTerminal(t *testing.T) {
	option := strings.Repeat("option ", 30)
	page := command.PageOf(&cli.Command{Usage: strings.Repeat("usage ", 30), Flags: []cli.Flag{
		command.Strings(new([]string), "host,H", option+"`HOSTS`").DefaultText("none"),
		command.Bool(new(bool), "a-longer-flag", "short"),
	}}, "genv sample")
	page.Description = []string{strings.Repeat("description ", 30) + "\n  laid out already"}
	page.Examples = []command.Explained{{Name: "genv sample " + strings.Repeat("x", 45), Text: strings.Repeat("example ", 10)}}
	for _, width := range []int{80, 100, 200} {
		var b bytes.Buffer
		require.NoError(t, command.WriteHelp(&b, &page, width))
		for line := range strings.Lines(b.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), min(width, 120), "width %d: %s", width, line)
		}
		require.Contains(t, b.String(), "\n     laid out already\n")
		require.Contains(t, b.String(), "\n   --host, -H HOSTS  option option")
		require.Contains(t, b.String(), "\n                     option option")
	}
	t.Run("an example takes its text below it where there is little room", func(t *testing.T) {
		var narrow, wide bytes.Buffer
		require.NoError(t, command.WriteHelp(&narrow, &page, 80))
		require.Contains(t, narrow.String(), "xxx\n          example example")
		require.NoError(t, command.WriteHelp(&wide, &page, 120))
		require.Contains(t, wide.String(), "xxx  example example")
	})
	t.Run("a pipe gets one line each", func(t *testing.T) {
		var b bytes.Buffer
		require.NoError(t, command.WriteHelp(&b, &page, 0))
		require.Contains(t, b.String(), "   --host, -H HOSTS  "+option+"HOSTS (default: none)\n")
	})
}

// What a command doesn't have is refused.
func TestUnknown(t *testing.T) {
	for line, says := range map[string]string{
		"genv remote gpus --policy x":  "unknown flag --policy; see genv remote gpus --help",
		"genv remote help":             `unknown command "help"; see genv remote --help`,
		"genv remote gpu":              `unknown command "gpu" (did you mean "gpus"?)`,
		"genv help remote controllers": `unknown command "controllers"`,
	} {
		r := genvtest.Run(t, strings.Fields(line)[1:]...)
		require.Equal(t, command.ExitFailed, r.Code, line)
		require.Contains(t, r.Err, says, line)
		require.Empty(t, r.Out, line)
	}
}

// TestHelpAgents: it is the page of the docs, which isn't wrapped: a terminal of 80 columns shows it as it is.
func TestHelpAgents(t *testing.T) {
	page := proctest.ReadFile(t, "../../../docs/agents.md")
	r := genvtest.Run(t, "help", "agents")
	require.Equal(t, string(page), r.Out, r.Err)
	for line := range strings.Lines(r.Out) {
		require.LessOrEqual(t, len(line), 81, line)
	}
}

// flags143 are the long flags of genv 1.4.3's commands, with those that it takes but hides.
const flags143 = `
activate: help shell eid id name gpu-memory gpus no-prompt no-attach over-subscribe no-load
attach: help config count index refresh over-subscribe
config: help quiet refresh clear load save
deactivate: help shell
detach: help index
devices: help no-cleanup reset
devices attach: help eid allow-over-subscription count index
devices detach: help eid index quiet
devices find: help eid
devices ps: help no-header timestamp format
devices query: help query queries
enforce: help interval non-env-processes no-non-env-processes env-devices no-env-devices env-memory no-env-memory max-devices-per-user max-devices-for-user
envs: help no-cleanup reset
envs activate: help eid uid username pid kernel-id
envs config: help eid
envs deactivate: help pid kernel-id
envs find: help pid kernel-id
envs ps: help no-header timestamp format
envs query: help eid query queries
home: help quiet
llm: help
llm attach: help
llm ps: help no-header timestamp format
llm serve: help host port gpus gpu-memory
monitor: help config-dir port interval
remote: help host hostfile username timeout exit-on-error quiet
remote activate: help name gpus no-prompt
remote devices: help no-header no-summary format
remote enforce: help interval non-env-processes no-non-env-processes env-devices no-env-devices env-memory no-env-memory max-devices-per-user max-devices-for-user
remote envs: help no-header no-summary timestamp format
remote llm: help
remote llm attach: help
remote llm ps: help no-header no-summary timestamp format
remote llm serve: help gpus
remote monitor: help config-dir port interval
remote query: help name query queries
shell: help init deinit ok reattach reconfigure
status: help
usage execute: help
usage snapshot: help format type
version: help
`

// TestAbbreviationsOf143: what was a unique abbreviation in 1.4.3 means the same here, whatever flags we have besides.
func TestAbbreviationsOf143(t *testing.T) {
	p := command.Program{Getenv: os.Getenv}
	tried := 0
	for line := range strings.SplitSeq(strings.TrimSpace(flags143), "\n") {
		name, list, _ := strings.Cut(line, ":")
		flags, words := strings.Fields(list), strings.Fields(name)
		place := command.PlaceAfter(command.New(p, genvtest.Commands), words)
		for _, flag := range flags {
			for length := 1; length <= len(flag); length++ {
				prefix := flag[:length]
				same := slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return !strings.HasPrefix(f, prefix) })
				if len(same) > 1 && prefix != flag {
					continue
				}
				found := place.Flag("--" + prefix)
				require.NotNil(t, found, "%s --%s", name, prefix)
				require.Contains(t, found, flag, "%s --%s", name, prefix)
				tried++
			}
		}
	}
	require.Greater(t, tried, 500)
}

// TestListedCommands: the help of genv remote lists what administrators type, and what programs and few
// others call is completed and has help of its own. A group names only what its command has.
func TestListedCommands(t *testing.T) {
	listed := map[string][]string{}
	eachPage(func(cmd *cli.Command, page *command.HelpPage) {
		for _, group := range page.Commands {
			for _, entry := range group.Rows {
				listed[page.Name] = append(listed[page.Name], entry.Name)
			}
		}
		for _, name := range command.Grouped(page) {
			known := slices.ContainsFunc(cmd.Subcommands, func(c *cli.Command) bool { return c.Name == name })
			require.True(t, known || command.FlagOf(cmd, strings.TrimPrefix(name, "--")) != nil, "%s: %s", page.Name, name)
		}
	})
	require.Equal(t, strings.Fields("activate devices doctor enforce envs exempt gpus history hold hosts install release report top wait watch"), listed["genv remote"])
	require.NotContains(t, listed["genv"], "usage")
	r := genvtest.Run(t, "__complete", "remote", "")
	for _, name := range strings.Fields("llm monitor query") {
		require.Contains(t, r.Out, name)
		require.Zero(t, genvtest.Run(t, "remote", name, "--help").Code, name)
	}
	require.Contains(t, genvtest.Run(t, "__complete", "help", "conn").Out, "connection")
}

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
	written := proctest.Try(filepath.Glob(filepath.Join(dir, "*"))).OK(t)
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
		out := proctest.Try(cmd.Output()).OK(t, "%s: %s", program, &warnings)
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
	page := proctest.ReadFile(t, filepath.Join(dir, "genv-home.1"))
	require.Equal(t, golden(t, "testdata/man/genv-home.1", string(page)), string(page))
}

// golden is the content of a file, which UPDATE_GOLDEN=1 writes.
func golden(t *testing.T, path, now string) string {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(now), 0o644))
	}
	data := proctest.ReadFile(t, path)
	return string(data)
}

var startsGenv = regexp.MustCompile(`(^|[ (])genv `)

// TestExamplesOfHelp: the examples are of the command that they explain, and use flags that it has.
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
	document := proctest.ReadFile(t, "../../../docs/daily-work.md")
	dir := t.TempDir()
	require.Zero(t, genvtest.Run(t, "man", dir).Code)
	page := proctest.ReadFile(t, filepath.Join(dir, "genv.1"))
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
