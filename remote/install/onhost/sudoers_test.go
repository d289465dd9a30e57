package onhost_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install/onhost"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// joined is a text of sudoers with each line on one line, without comments.
func joined(text string) (lines []string) {
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, "# ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestSudoersIsWhatTheDocumentationSays: and visudo takes it, for several accounts too.
func TestSudoersIsWhatTheDocumentationSays(t *testing.T) {
	page := proctest.ReadFile(t, "../../../docs/fleet.md")
	_, documented, found := strings.Cut(string(page), "```sudoers\nDefaults!")
	require.True(t, found)
	documented, _, _ = strings.Cut(documented, "```")
	require.Equal(t, joined("Defaults!"+documented), joined(onhost.Sudoers(remote.DefaultGenv, "", "genv")))
	proctest.CheckSudoers(t, onhost.Sudoers("/opt/my_genv-2.0+x/bin/genv", "", "admin", "#1001", "gpu-user_x"))
}

func TestCheckPath(t *testing.T) {
	for _, path := range []string{"/usr/local/bin/genv", "/opt/genv/bin/genv", "/opt/genv-1.2+x_y/genv", "/genv"} {
		require.NoError(t, onhost.CheckPath(path), path)
	}
	for _, path := range []string{
		"", "genv", "./genv", "/usr/bin/python", "/usr/local/bin/genv/", "/usr//bin/genv", "/a/../bin/genv", "/a/./genv", "/a b/genv", "/a,b/genv",
		"/a:b/genv", "/a=b/genv", "/a*/genv", "/a\n/genv", "/a'/genv", "/a$x/genv", "/.hidden/genv", "/ä/genv", strings.Repeat("/a", 120) + "/genv",
	} {
		require.Error(t, onhost.CheckPath(path), path)
	}
}

// FuzzSudoers: whatever is in a file, what is written in its place has only lines of ours, for accounts that are in it.
func FuzzSudoers(f *testing.F) {
	f.Add(onhost.Sudoers(place, "", "bob"))
	f.Add("bob ALL=(root) NOPASSWD: ALL\n")
	f.Add(remote.SudoersLine("ALL", place))
	f.Add("#includedir /etc\n")
	f.Fuzz(func(t *testing.T, text string) {
		w, s := wanted(), complete()
		s.Rules.Content = text
		plan := proctest.Try(onhost.Decide(w, s)).OK(t)
		for _, line := range joined(plan.Rules) {
			name, _, _ := strings.Cut(line, " ")
			if strings.HasPrefix(line, "Defaults!") {
				require.Equal(t, joined(onhost.Sudoers(place, ""))[0], line)
				continue
			}
			require.Regexp(t, `^([a-z0-9_][a-z0-9_-]*|#[0-9]+)$`, name)
			require.Equal(t, remote.SudoersLine(name, place), line)
			require.Contains(t, text+"admin", name)
		}
	})
}

// An account is written by its name only if that can't mean anything else in sudoers.
func TestSudoersAccount(t *testing.T) {
	for name, want := range map[string]string{
		"admin": "admin", "_apt": "_apt", "gpu-user1": "gpu-user1", "Bob": "#7", "ALL": "#7", "ann@corp.example": "#7", `CORP\jdoe`: "#7", "First Last": "#7",
		"%wheel": "#7", "#0": "#7", "-a": "#7", "a.b": "#7", "": "#7",
	} {
		require.Equal(t, want, remote.SudoersAccount(name, "7"), name)
	}
	require.Equal(t, "USER", remote.SudoersAccount("Bob", ""))
	require.Equal(t, "USER", remote.SudoersAccount("", "7 ALL=(ALL) ALL"))
}

// The folders of the site's secure_path stay, and nothing that isn't a plain folder.
func TestTheSitesFoldersStay(t *testing.T) {
	text := onhost.Sudoers(place, `/usr/bin:/opt/nvidia/bin:relative:/a b:/x"y:/opt/site/sbin`)
	require.Contains(t, text, `secure_path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/nvidia/bin:/opt/site/sbin"`)
}
