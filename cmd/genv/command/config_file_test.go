package command

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"golang.org/x/sys/unix"
)

func environment(entries map[string]string) func(string) string {
	return func(name string) string { return entries[name] }
}

func TestConfigPaths(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		want []string
	}{
		"home":                      {map[string]string{"HOME": "/home/u"}, []string{"/home/u/.config/genv/hosts.yaml", "/etc/genv/hosts.yaml"}},
		"XDG":                       {map[string]string{"HOME": "/home/u", "XDG_CONFIG_HOME": "/cfg"}, []string{"/cfg/genv/hosts.yaml", "/etc/genv/hosts.yaml"}},
		"a relative XDG":            {map[string]string{"HOME": "/home/u", "XDG_CONFIG_HOME": "cfg"}, []string{"/home/u/.config/genv/hosts.yaml", "/etc/genv/hosts.yaml"}},
		"neither":                   {nil, []string{"/etc/genv/hosts.yaml"}},
		"a relative home":           {map[string]string{"HOME": "."}, []string{"/etc/genv/hosts.yaml"}},
		"XDG is the systemFolder's": {map[string]string{"XDG_CONFIG_HOME": "/etc"}, []string{"/etc/genv/hosts.yaml"}},
		"a folder":                  {map[string]string{"HOME": "/home/u", ConfigVariable: "/mine"}, []string{"/mine/hosts.yaml"}},
		"off":                       {map[string]string{"HOME": "/home/u", ConfigVariable: ConfigOff}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, ConfigPaths(environment(test.env), HostsFile))
		})
	}
}

// Files that others could have written, and what is said about them.
func TestOpenConfig(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "genv")
	require.NoError(t, os.Mkdir(folder, 0o755))
	path := filepath.Join(folder, ConfigFile)
	require.NoError(t, os.WriteFile(path, []byte("fanout: 3\n"), 0o600))
	group := 4000
	owner := func(uid, gid int) func(t *testing.T) {
		return func(t *testing.T) {
			proctest.NeedRoot(t) // only root can give files away
			require.NoError(t, os.Chown(path, uid, gid))
		}
	}
	mode := func(file, folderMode fs.FileMode) func(t *testing.T) {
		return func(t *testing.T) {
			require.NoError(t, os.Chmod(path, file))
			require.NoError(t, os.Chmod(folder, folderMode))
		}
	}
	for _, test := range []struct {
		name  string
		setUp []func(*testing.T)
		want  string // of the error; empty for none
	}{
		{"one's own", nil, ""},
		{"for all to read", []func(*testing.T){mode(0o644, 0o755)}, ""},
		{"for root's group to write", []func(*testing.T){owner(0, 0), mode(0o664, 0o775)}, ""},
		{"for all to write", []func(*testing.T){mode(0o666, 0o755)}, "config.yaml may be changed by every user: run `chmod o-w " + path + "`"},
		{"in a folder for all", []func(*testing.T){mode(0o644, 0o777)}, "genv may be changed by every user: run `chmod o-w " + folder + "`"},
		{"in a folder for all, sticky", []func(*testing.T){mode(0o644, 0o777|fs.ModeSticky)}, "may be changed by every user"},
		{"for a group to write", []func(*testing.T){owner(0, group), mode(0o664, 0o755)}, "config.yaml may be changed by the group 4000: run `chmod g-w " + path + "`"},
		{"another user's", []func(*testing.T){owner(4000, group), mode(0o600, 0o755)}, "config.yaml belongs to uid 4000, who could change what genv does: run `chown root " + path + "`, or set GENV_CONFIG_DIR=off"},
	} {
		t.Run(test.name, func(t *testing.T) {
			mode(0o600, 0o755)(t)
			for _, do := range test.setUp {
				do(t)
			}
			if os.Geteuid() == 0 {
				defer func() { require.NoError(t, os.Chown(path, 0, 0)) }()
			}
			found, err := FindConfig(environment(map[string]string{ConfigVariable: folder}), ConfigFile)
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, path, found)
		})
	}
	mode(0o600, 0o755)(t)
	file := proctest.Try(OpenConfig(path)).OK(t)
	text := proctest.Try(io.ReadAll(file)).OK(t)
	require.NoError(t, file.Close())
	require.Equal(t, "fanout: 3\n", string(text))
}

func TestOpenConfigRefusesWhatIsNoFile(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, HostsFile)
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	_, err := OpenConfig(pipe)
	require.EqualError(t, err, pipe+" is not a regular file", "and genv waits for no writer")
	require.ErrorIs(t, proctest.Try(OpenConfig(filepath.Join(folder, "none"))).Err, fs.ErrNotExist)
	link := filepath.Join(folder, ConfigFile)
	require.NoError(t, os.Symlink("/nowhere", link))
	require.ErrorIs(t, proctest.Try(OpenConfig(link)).Err, fs.ErrNotExist)
	found := proctest.Try(FindConfig(environment(map[string]string{ConfigVariable: folder}), PolicyFile)).OK(t)
	require.Empty(t, found)
}

// With `sudo -E` the home is that of the user who ran sudo.
func TestAFolderOfAnotherUserIsLeftOut(t *testing.T) {
	proctest.NeedRoot(t) // only root can give folders away
	home := t.TempDir()
	folder := filepath.Join(home, ".config", "genv")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	env := environment(map[string]string{"HOME": home})
	all, leftOut := configFolders(env)
	require.Equal(t, []string{folder, systemFolder}, all)
	require.NoError(t, leftOut)

	require.NoError(t, os.Chown(folder, 4000, 4000))
	all, leftOut = configFolders(env)
	require.Equal(t, []string{systemFolder}, all)
	require.EqualError(t, leftOut, folder+" isn't read: "+folder+" belongs to uid 4000, and this program runs as uid 0; name its files with -H and --policy")

	// The owner of the home decides where a link in it leads.
	require.NoError(t, os.Chown(folder, 0, 0))
	for _, above := range []string{filepath.Dir(folder), home} {
		require.NoError(t, os.Chown(above, 4000, 4000))
		all, leftOut = configFolders(env)
		require.Equal(t, []string{systemFolder}, all)
		require.ErrorContains(t, leftOut, folder+" isn't read: "+above+" belongs to uid 4000")
		require.NoError(t, os.Chown(above, 0, 0))
	}
	all, leftOut = configFolders(environment(map[string]string{"XDG_CONFIG_HOME": filepath.Dir(folder)}))
	require.Equal(t, []string{folder, systemFolder}, all)
	require.NoError(t, leftOut)

	require.NoError(t, os.Chown(home, 4000, 4000))
	require.NoError(t, os.RemoveAll(folder))
	_, leftOut = configFolders(env)
	require.NoError(t, leftOut, "there is nothing to leave out")
}

// A link leads to a file in a folder where somebody else may replace it.
func TestOpenConfigChecksTheFolderBehindALink(t *testing.T) {
	folder, elsewhere := t.TempDir(), t.TempDir()
	path := filepath.Join(folder, PolicyFile)
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "p.yaml"), nil, 0o600))
	require.NoError(t, os.Symlink(filepath.Join(elsewhere, "p.yaml"), path))
	file := proctest.Try(OpenConfig(path)).OK(t)
	require.NoError(t, file.Close())
	require.NoError(t, os.Chmod(elsewhere, 0o777))
	require.ErrorContains(t, proctest.Try(OpenConfig(path)).Err, elsewhere+" may be changed by every user")
}
