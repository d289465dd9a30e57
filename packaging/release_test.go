package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRelease makes a release twice, in different folders with other modes and times of files: the bytes are the same.
func TestRelease(t *testing.T) {
	need(t, "git", "tar", "ssh-keygen", "make")
	nfpm(t)
	if found, _ := filepath.Glob("../.tools/cyclonedx-gomod-*/cyclonedx-gomod"); len(found) == 0 {
		skip(t, "cyclonedx-gomod is not installed: `make test` installs it")
	}
	key := filepath.Join(t.TempDir(), "key")
	output(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	first := release(t, filepath.Join(t.TempDir(), "here"), "022", key)
	second := release(t, filepath.Join(t.TempDir(), "somewhere/else"), "077", "")
	sums, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	require.NoError(t, err)
	again, err := os.ReadFile(filepath.Join(second, "SHA256SUMS"))
	require.NoError(t, err)
	require.Equal(t, string(sums), string(again))
	require.Equal(t, 4, strings.Count(string(sums), "\n"), "%s", sums)
	require.NoFileExists(t, filepath.Join(second, "SHA256SUMS.sig"))

	bill, err := os.ReadFile(only(t, first, "genv-2.0.0-linux-*.cdx.json"))
	require.NoError(t, err)
	require.Contains(t, string(bill), "pkg:golang/golang.org/x/crypto@")
	require.NotContains(t, string(bill), "serialNumber")

	// As docs/install.md says.
	public, err := os.ReadFile(key + ".pub")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(first, "signers"), []byte("genv "+string(public)), 0o600))
	const verify = `cd "$1" && ssh-keygen -Y verify -f signers -I genv -n genv -s SHA256SUMS.sig <SHA256SUMS && sha256sum -c --ignore-missing SHA256SUMS`
	output(t, "/bin/sh", "-c", verify, "sh", first)
	require.NoError(t, os.WriteFile(filepath.Join(first, "SHA256SUMS"), append(sums, '\n'), 0o600))
	require.Error(t, exec.Command("/bin/sh", "-c", verify, "sh", first).Run(), "the sums were changed")
}

// TestReleaseIsOfACommit: a release has a version, and nothing that isn't committed.
func TestReleaseIsOfACommit(t *testing.T) {
	need(t, "git", "tar", "make")
	dir := commit(t, filepath.Join(t.TempDir(), "tree"), "022")
	refused := func(version string) string {
		cmd := exec.Command("make", "release", "VERSION="+version, "NFPM=", "CYCLONEDX=")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		return string(out)
	}
	require.Contains(t, refused("2.0.0-dirty"), "Write the version")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), nil, 0o600))
	require.Contains(t, refused("v2.0.0"), "Commit or stash your changes first")
}

// commit copies the source tree to a folder, and commits it there at a fixed time.
func commit(t *testing.T, dir, umask string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	cmd := exec.Command("/bin/sh", "-euc", `umask "$2"
		tar --exclude=./.git --exclude=./.tools --exclude=./bin --exclude=./dist -cf - . | tar -C "$1" --no-same-permissions -xmf -
		ln -s "$PWD/.tools" "$1/.tools" && cd "$1" && git init -q && git add .
		git -c user.name=test -c user.email=test@localhost -c commit.gpgsign=false commit -q -m test --date=@1700000000`, "sh", dir, umask)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=@1700000000")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}

// release makes a release for this architecture in a copy of the source tree, and returns its folder.
func release(t *testing.T, dir, umask, key string) string {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-euc", `umask "$1" && exec make release VERSION=v2.0.0 RELEASE_GO=local KEY="$2"`, "sh", umask, key)
	cmd.Dir = commit(t, dir, umask)
	cmd.Env = append(os.Environ(), "ARCHES="+runtime.GOARCH)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return filepath.Join(dir, "dist")
}
