package folder_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// tree is a folder with the file var/lib/docker/record, which only the caller can write.
type tree struct {
	*testing.T
	root string
}

const recordPath = "/var/lib/docker/record"

func newTree(t *testing.T) tree {
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	x := tree{t, root}
	x.folder("var/lib/docker", 0o755)
	x.file(recordPath, "docker's")
	return x
}

func (x tree) path(name string) string { return filepath.Join(x.root, name) }

func (x tree) folder(name string, mode fs.FileMode) {
	require.NoError(x, os.MkdirAll(x.path(name), 0o755))
	require.NoError(x, os.Chmod(x.path(name), mode))
}

func (x tree) file(name, content string) {
	require.NoError(x, os.WriteFile(x.path(name), []byte(content), 0o600))
}

func (x tree) chmod(name string, mode fs.FileMode) { require.NoError(x, os.Chmod(x.path(name), mode)) }

// link puts a link to another path in the place of what is there, which it moves to /moved.
func (x tree) link(name, to string) {
	require.NoError(x, os.Rename(x.path(name), x.path("moved")))
	require.NoError(x, os.Symlink(to, x.path(name)))
}

func (x tree) giveAway(name string) { require.NoError(x, os.Lchown(x.path(name), 4001, 4001)) }

func TestReadTrustedPath(t *testing.T) {
	for name, row := range map[string]struct {
		change func(tree)
		root   bool // only root can make this
		want   error
	}{
		"only the caller can write it":     {func(tree) {}, false, nil},
		"all may read it":                  {func(x tree) { x.chmod(recordPath, 0o444) }, false, nil},
		"a link to the data":               {func(x tree) { x.link("var/lib/docker", "/moved") }, false, nil},
		"a relative link":                  {func(x tree) { x.link("var/lib", "./../moved/.") }, false, nil},
		"a link above the root":            {func(x tree) { x.link("var/lib", "../../../../../moved") }, false, nil},
		"a link to the file":               {func(x tree) { x.link(recordPath, "/moved") }, false, nil},
		"below a folder for all":           {func(x tree) { x.chmod("var", 0o777|fs.ModeSticky) }, false, nil},
		"missing":                          {func(x tree) { require.NoError(x, os.Remove(x.path(recordPath))) }, false, fs.ErrNotExist},
		"its folder is missing":            {func(x tree) { require.NoError(x, os.Rename(x.path("var"), x.path("moved"))) }, false, fs.ErrNotExist},
		"a link to nothing":                {func(x tree) { x.link("var/lib", "/elsewhere") }, false, fs.ErrNotExist},
		"a group may write it":             {func(x tree) { x.chmod(recordPath, 0o620) }, false, folder.ErrUntrusted},
		"all may write it":                 {func(x tree) { x.chmod(recordPath, 0o602) }, false, folder.ErrUntrusted},
		"all may write its folder":         {func(x tree) { x.chmod("var/lib/docker", 0o777) }, false, folder.ErrUntrusted},
		"a group may write a folder above": {func(x tree) { x.chmod("var", 0o775) }, false, folder.ErrUntrusted},
		"all may write the root":           {func(x tree) { x.chmod("", 0o777) }, false, folder.ErrUntrusted},
		"in a folder for all":              {func(x tree) { x.chmod("var/lib/docker", 0o777|fs.ModeSticky) }, false, folder.ErrUntrusted},
		"a link in a folder for all": {func(x tree) {
			x.link("var/lib", "../moved")
			x.chmod("var", 0o777|fs.ModeSticky)
		}, false, folder.ErrUntrusted},
		"all may write where a link leads": {func(x tree) {
			x.folder("data", 0o777)
			x.link("var/lib", "/data/../moved")
		}, false, folder.ErrUntrusted},
		"a link to itself": {func(x tree) { x.link("var/lib", "lib") }, false, folder.ErrUntrusted},
		"a folder":         {func(x tree) { x.link(recordPath, "/var") }, false, folder.ErrUntrusted},
		"a FIFO": {func(x tree) {
			require.NoError(x, os.Remove(x.path(recordPath)))
			require.NoError(x, unix.Mkfifo(x.path(recordPath), 0o600))
		}, false, folder.ErrUntrusted},
		"a user's file":           {func(x tree) { x.giveAway(recordPath) }, true, folder.ErrUntrusted},
		"a user's folder":         {func(x tree) { x.giveAway("var/lib/docker") }, true, folder.ErrUntrusted},
		"a user's folder above":   {func(x tree) { x.giveAway("var") }, true, folder.ErrUntrusted},
		"missing with a user":     {func(x tree) { x.giveAway("var/lib/docker"); require.NoError(x, os.Remove(x.path(recordPath))) }, true, folder.ErrUntrusted},
		"a user's link":           {func(x tree) { x.link("var/lib", "/moved"); x.giveAway("var/lib") }, true, folder.ErrUntrusted},
		"a user's, below sticky":  {func(x tree) { x.chmod("var", 0o777|fs.ModeSticky); x.giveAway("var/lib") }, true, folder.ErrUntrusted},
		"a user's, behind a link": {func(x tree) { x.link("var/lib", "/moved"); x.giveAway("moved") }, true, folder.ErrUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			if row.root && os.Geteuid() != 0 {
				require.NotEqual(t, "true", os.Getenv("CI"), "this test has to run as root")
				t.Skip("only root can give a file to another user: run it with sudo")
			}
			x := newTree(t)
			row.change(x)
			data, err := folder.ReadTrustedPath(x.root, recordPath, 100)
			require.ErrorIs(t, err, row.want)
			if row.want == nil {
				require.Equal(t, "docker's", string(data))
			}
		})
	}
}

// TestReadTrustedPathOfALargeFile: it isn't read, and that is no matter of trust.
func TestReadTrustedPathOfALargeFile(t *testing.T) {
	x := newTree(t)
	x.file(recordPath, strings.Repeat("x", 101))
	_, err := folder.ReadTrustedPath(x.root, recordPath, 100)
	require.ErrorContains(t, err, "longer than 100 bytes")
	require.NotErrorIs(t, err, folder.ErrUntrusted)
	require.NoError(t, os.Truncate(x.path(recordPath), 1<<40))
	_, err = folder.ReadTrustedPath(x.root, recordPath, 100)
	require.ErrorContains(t, err, "longer than 100 bytes")
}
