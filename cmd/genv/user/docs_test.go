package user_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const root = "../../.."

// documents are README.md and the pages of docs, by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths := proctest.Try(filepath.Glob(root + "/docs/*.md")).OK(t)
	all := map[string]string{}
	for _, path := range append(paths, root+"/README.md") {
		all[path] = proctest.ReadText(t, path)
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
			proctest.Try(os.Stat(target)).OK(t, path)
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

// snippet is a block of a page: what is fenced, in the language that the fence names, or what is indented, which is sh.
type snippet struct{ page, language, text string }

var (
	fenced   = regexp.MustCompile("(?ms)^ *```(\\S*)\n(.*?)^ *```\n")
	indented = regexp.MustCompile(`\n\n((?: {4,}.*\n+)+)`)
	prompted = regexp.MustCompile(`(?m)^ *\$ (.*\n)`)
)

// snippets are those of README.md and docs.
func snippets(t *testing.T) (all []snippet) {
	t.Helper()
	docs := documents(t)
	for _, page := range slices.Sorted(maps.Keys(docs)) {
		for _, m := range fenced.FindAllStringSubmatch(docs[page], -1) {
			all = append(all, snippet{page, m[1], m[2]})
		}
		for _, m := range indented.FindAllStringSubmatch(fenced.ReplaceAllString(docs[page], "\n"), -1) {
			text := m[1]
			if lines := prompted.FindAllStringSubmatch(text, -1); lines != nil { // the rest is output
				text = ""
				for _, line := range lines {
					text += line[1]
				}
			}
			all = append(all, snippet{page, "sh", text})
		}
	}
	return all
}

// TestSnippetsOfTheDocs: what reads each language accepts the snippet. JSON is compared with
// its types by the test of docs.
func TestSnippetsOfTheDocs(t *testing.T) {
	proctest.NeedPrograms(t, "bash", "ssh", python)
	file := filepath.Join(t.TempDir(), "snippet")
	read := map[string]int{}
	for _, s := range snippets(t) {
		read[s.language]++
		require.NoError(t, os.WriteFile(file, []byte(s.text), 0o600))
		var reader *exec.Cmd
		switch s.language {
		case "sh":
			reader = exec.Command("bash", "-n", file)
		case "sshconfig":
			reader = exec.Command("ssh", "-G", "-F", file, "gpu-07")
		case "python":
			reader = exec.Command(python, "-c", "import sys; compile(sys.stdin.read(), 'snippet', 'exec')")
			reader.Stdin = strings.NewReader(s.text)
		case "json":
			require.True(t, json.Valid([]byte(s.text)), "%+v", s)
			continue
		case "yaml":
			readYAML(t, s)
			continue
		case "ini", "nginx", "sudoers", "text":
			continue
		default:
			require.Fail(t, "a fence without a language that is known here", "%+v", s)
		}
		proctest.Output(t, reader)
	}
	require.Greater(t, read["sh"], 40)
	require.Greater(t, read["yaml"], 10)
}

var (
	yamlName = regexp.MustCompile(`(?m)^ *# (?:\S*/)?(\w+)(?:\.\w+)?\.yaml\b`)
	// yamlReaders are command lines that read the file of a name from the configuration folder.
	yamlReaders = map[string][]string{
		command.PolicyFile: {"policy", "check"},
		command.HostsFile:  {"remote", "hosts", "-H", "@all"},
		command.ConfigFile: {"remote", "hosts", "-H", "a"},
	}
)

// readYAML has genv read a file as what its first line names, or as what it is.
func readYAML(t *testing.T, s snippet) {
	t.Helper()
	first, _, _ := strings.Cut(s.text, "\n")
	named := yamlName.FindStringSubmatch(first)
	var refusals []string
	for name, args := range yamlReaders {
		if named != nil && named[1]+".yaml" != name {
			continue
		}
		genvtest.Configure(t, name, s.text)
		r := genvtest.Run(t, args...)
		if r.Code == command.ExitOK && !strings.Contains(r.Err, "genv: ") { // a warning is about an old name
			return
		}
		refusals = append(refusals, name+": "+r.Err+r.Out)
	}
	require.Fail(t, "no file of genv", "%s: %s%s", s.page, s.text, strings.Join(refusals, "\n"))
}

// TestExampleFiles: genv reads them, also with everything that is a comment in config.example.yaml.
func TestExampleFiles(t *testing.T) {
	setting := regexp.MustCompile(`(?m)^#(\w|  )`)
	for _, path := range []string{"policy.example.yaml", "hosts.example.yaml", "config.example.yaml", "packaging/policy.yaml"} {
		text := proctest.ReadText(t, filepath.Join(root, path))
		name, _, _ := strings.Cut(filepath.Base(path), ".")
		if name == "config" {
			text = setting.ReplaceAllString(text, "$1")
		}
		readYAML(t, snippet{path, "yaml", "# " + name + ".yaml\n" + text})
	}
}

// forPeople says whether a snippet has only what people on a GPU host type, and what ends by itself. groups are
// those of genv's help that are for them.
func (s snippet) forPeople(groups string) bool {
	if s.language != "sh" || regexp.MustCompile(`…|until Ctrl-C|zsh`).MatchString(s.text) {
		return false
	}
	for line := range strings.Lines(strings.TrimSpace(s.text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		command, _, _ := strings.Cut(rest, " ")
		isGenv := word == "genv" && strings.Contains(groups, "\n   "+command+" ")
		if !isGenv && !slices.Contains([]string{"eval", "echo", "source", "python", "nvidia-smi"}, word) {
			return false
		}
	}
	return true
}

// TestSnippetsForPeople runs what people type in their shells, on a host with simulated GPUs.
func TestSnippetsForPeople(t *testing.T) {
	proctest.NeedPrograms(t, python)
	s := newStation(t)
	u := s.me().with("PATH=" + s.path("bin") + ":" + strings.TrimPrefix(s.env[0], "PATH="))
	require.NoError(t, os.Mkdir(s.path("bin"), 0o755))
	require.NoError(t, os.Symlink(python, s.path("bin/python")))
	require.NoError(t, os.WriteFile(filepath.Join(u.home, "train.py"), []byte("import os\nprint('trained on', os.environ['CUDA_VISIBLE_DEVICES'])\n"), 0o644))
	groups, _, found := strings.Cut(help(t, ""), "\nADMINISTRATOR:")
	require.True(t, found)
	trained := 0
	for _, snippet := range snippets(t) {
		if !snippet.forPeople(groups) {
			continue
		}
		shell := u.open("bash")
		for line := range strings.Lines(strings.TrimSpace(snippet.text)) {
			answer := shell.sayAll(line)
			require.Empty(t, answer.status, "%s: %s%s", snippet.page, line, answer.text)
			trained += strings.Count(answer.text, "trained on 0\n")
		}
		shell.close()
		require.Empty(t, u.run("genv", "envs", "--format", "csv", "--no-header").Out, snippet.text)
	}
	require.Equal(t, 2, trained, "by README.md and docs/using-gpus.md")
	enforce := regexp.MustCompile(`(?m)^ +sudo (genv enforce .*--dry-run)`).FindStringSubmatch(documents(t)[root+"/README.md"])
	require.NotNil(t, enforce)
	answer := s.admin().openBare("bash").sayAll(enforce[1])
	require.Empty(t, answer.status, answer.text)
	require.Contains(t, answer.text, "1 host answered, 0 findings: nothing would be done")
	require.Empty(t, u.openBare("bash").sayAll(". ~/.bashrc; genv activate --gpus 1").status, "as README.md has it set up")
}

// TestInstallLineOfTheREADME: the line that installs the package names one file, and people look before they enforce.
func TestInstallLineOfTheREADME(t *testing.T) {
	readme := documents(t)[root+"/README.md"]
	install := regexp.MustCompile(`(?m)^ +sudo (apt install .*)`).FindAllStringSubmatch(readme, -1)
	require.Len(t, install, 1)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/dist", 0o755))
	for i, version := range []string{"2.0.0", "2.10.0", "1.9.0"} {
		file := dir + "/dist/genv_" + version + "_amd64.deb"
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, os.Chtimes(file, time.Time{}, time.Now().Add(time.Duration(i-9)*time.Hour)))
	}
	apt := exec.Command("bash", "-c", `apt() { echo "$@"; }; `+install[0][1])
	apt.Dir = dir
	require.Equal(t, "install ./dist/genv_1.9.0_amd64.deb\n", proctest.Output(t, apt), "the newest")
	require.Less(t, strings.Index(readme, "genv enforce --interval 0 --dry-run"), strings.Index(readme, "enable --now genv-enforce"))
}

var statement = regexp.MustCompile(`(?m)^ *(?:sudo )?(genv remote (?:-H \S+ )?enforce .*)`)

// TestDryRunsOfTheDocs runs the command lines with which administrators look at what enforce would do.
func TestDryRunsOfTheDocs(t *testing.T) {
	built := proctest.Try(genvtest.Programs()).OK(t)
	s := &snapshot.Snapshot{
		Devices:   []snapshot.Device{{TotalMemory: snapshot.MiB(81559)}},
		Processes: []snapshot.Process{{PID: 77, Start: 1, UID: new(snapshot.UID(1001)), Username: "bob", Command: "python", Usage: []snapshot.DeviceUsage{{Memory: snapshot.MiB(1000)}}}},
	}
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "gpu-01", Handler: genvhost.New(s)}, &inprocess.Server{Name: "gpu-02", Handler: genvhost.New(&snapshot.Snapshot{})})
	dir := genvtest.Configure(t, command.HostsFile, "hosts: ['gpu-[01-02]']\n", command.ConfigFile, "remote: {ssh-config: "+f.SSHConfig()+"}\n")
	ran, joined := 0, strings.NewReplacer("\\\n", "", "|\n", "|")
	for _, snippet := range snippets(t) {
		for _, m := range statement.FindAllStringSubmatch(joined.Replace(snippet.text), -1) {
			jq, err := exec.LookPath("jq")
			if !strings.Contains(m[1], "--dry-run") || !strings.Contains(m[1], "--interval 0") || strings.Contains(m[1], "jq") && err != nil {
				continue
			}
			bash := exec.Command("bash", "-ec", "set -o pipefail; "+m[1])
			bash.Env = []string{"PATH=" + built + "/bin:/usr/bin:/bin:" + filepath.Dir(jq), "HOME=" + dir, "GENV_CONFIG_DIR=" + dir, "GENV_SOCKET=off"}
			out := proctest.Output(t, bash)
			require.Equal(t, strings.Contains(m[1], "--non-env-processes"), strings.Contains(out, "bob"), "%s: %s", m[1], out)
			if strings.Contains(m[1], "jq") {
				require.Contains(t, out, "bob\tgpu-01\tProcess 77 is not running in a GPU environment")
			}
			ran++
		}
	}
	require.Greater(t, ran, 5)
}
