package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install"
)

// joined is a text of sudoers with each line on one line, without comments.
func joined(text string) (lines []string) {
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestSudoersIsWhatTheDocumentationSays: and visudo takes it, for several accounts too.
func TestSudoersIsWhatTheDocumentationSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, documented, found := strings.Cut(string(page), "```\nDefaults!")
	require.True(t, found)
	documented, _, _ = strings.Cut(documented, "```")
	require.Equal(t, joined("Defaults!"+documented), joined(install.Sudoers(remote.DefaultGenv, "admin")))

	visudo, err := exec.LookPath("visudo")
	if err != nil {
		visudo = "/usr/sbin/visudo"
	}
	if _, err := os.Stat(visudo); err != nil {
		t.Skip("there is no visudo on this machine")
	}
	path := filepath.Join(t.TempDir(), "genv")
	require.NoError(t, os.WriteFile(path, []byte(install.Sudoers("/opt/my_genv-2.0+x/bin/genv", "admin", "Bob", "gpu.user-1_x")), 0o440))
	out, err := exec.Command(visudo, "-cf", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestCheckAccount(t *testing.T) {
	for _, name := range []string{"admin", "Bob", "_apt", "gpu.user-1", "x"} {
		require.NoError(t, install.CheckAccount(name), name)
	}
	for _, name := range []string{
		"", "ALL", "ADMINS", "A1", "%wheel", "#0", "+netgroup", "!bob", "a b", "a,b", "a=b", "a:b", "a\nb", "a\\", "a!", "a(b)", "-a", "0", "1a", "ä", "a@b",
		`"a"`, "a*", "a#b", strings.Repeat("a", 33),
	} {
		require.Error(t, install.CheckAccount(name), name)
	}
}

func TestCheckPath(t *testing.T) {
	for _, path := range []string{"/usr/local/bin/genv", "/opt/genv/bin/genv", "/opt/genv-1.2+x_y/genv", "/genv"} {
		require.NoError(t, install.CheckPath(path), path)
	}
	for _, path := range []string{
		"", "genv", "./genv", "/usr/bin/python", "/usr/local/bin/genv/", "/usr//bin/genv", "/a/../bin/genv", "/a/./genv", "/a b/genv", "/a,b/genv",
		"/a:b/genv", "/a=b/genv", "/a*/genv", "/a\n/genv", "/a'/genv", "/a$x/genv", "/.hidden/genv", "/ä/genv", strings.Repeat("/a", 120) + "/genv",
	} {
		require.Error(t, install.CheckPath(path), path)
	}
}

// FuzzSudoers: whatever is in a file, what is written in its place has only lines of ours,
// for accounts that are in it.
func FuzzSudoers(f *testing.F) {
	f.Add(install.Sudoers(place, "bob"))
	f.Add("bob ALL=(root) NOPASSWD: ALL\n")
	f.Add(remote.SudoersLine("ALL", place))
	f.Add("#includedir /etc\n")
	f.Fuzz(func(t *testing.T, text string) {
		w, s := wanted(), complete()
		s.Rules = strings.Split(text, "\n")
		plan, err := install.Decide(w, login, s)
		require.NoError(t, err)
		for _, line := range joined(plan.Sudoers) {
			name, _, _ := strings.Cut(line, " ")
			if strings.HasPrefix(line, "Defaults!") {
				require.Equal(t, joined(install.Sudoers(place))[0], line)
				continue
			}
			require.NoError(t, install.CheckAccount(name))
			require.Equal(t, remote.SudoersLine(name, place), line)
			require.Contains(t, text+"admin", name)
		}
	})
}
