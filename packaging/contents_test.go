package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/install/onhost"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// standIn prints what build.sh asks genv for.
const standIn = `#!/bin/sh
case $1 in
man) echo '.TH genv 1' >"$2/genv.1" ;;
completion) echo "# $2" ;;
esac
`

// TestPackages: what is in the .deb, the .rpm and the .tar.gz. The same input gives the same bytes, whatever
// the time and the umask.
func TestPackages(t *testing.T) {
	genv := filepath.Join(t.TempDir(), "genv")
	require.NoError(t, proctest.WriteProgram(genv, []byte(standIn)))
	var dist, sums [2]string
	for i := range sums {
		dist[i] = t.TempDir()
		packInto(t, dist[i], "v1.0.0", "deb rpm tar", genv)
		text := proctest.ReadFile(t, filepath.Join(dist[i], "SHA256SUMS"))
		sums[i] = string(text)
		output(t, "/bin/sh", "-c", `cd "$1" && sha256sum --check --quiet SHA256SUMS`, "sh", dist[i])
		require.Equal(t, 3, strings.Count(sums[i], "\n"))
		require.NoError(t, os.Chtimes(genv, time.Time{}, time.Unix(1e9, 0)))
		require.NoError(t, os.Chmod(genv, 0o700))
	}
	require.Equal(t, sums[0], sums[1])
	t.Run("deb", func(t *testing.T) { checkDeb(t, only(t, dist[0], "*.deb")) })
	t.Run("rpm", func(t *testing.T) { checkRPM(t, only(t, dist[0], "*.rpm")) })
	t.Run("tar", func(t *testing.T) { checkTarball(t, only(t, dist[0], "*.tar.gz")) })
}

// everywhere is in all packages, below /usr or in the tarball.
var everywhere = []string{
	"/bin/genv", "/bin/genv-docker", "/lib/genv/shims/nvidia-smi", "/lib/genv/shims/docker", "/lib/systemd/system/genv-controller.service",
	"/lib/systemd/system/genv-enforce.service", "/lib/systemd/system/genv-guard.service", "/lib/systemd/system/genv-host.service", "/lib/systemd/system/genv-host.socket",
	"/lib/tmpfiles.d/genv.conf", "/share/man/man1/genv.1.gz",
	"/share/bash-completion/completions/genv", "/share/fish/vendor_completions.d/genv.fish", "/share/doc/genv/copyright", "/share/doc/genv/README.md", "/share/doc/genv/CHANGELOG.md",
	"/share/doc/genv/docs/fleet.md", "/share/doc/genv/docs/schema/policy.json", "/share/doc/genv/examples/hosts.yaml", "/share/doc/genv/examples/policy.yaml",
	"/share/doc/genv/examples/config.yaml", "/share/doc/genv/examples/sudoers", "/share/doc/genv/examples/monitoring/genv-alerts.yml",
}

func checkDeb(t *testing.T, deb string) {
	proctest.NeedPrograms(t, "dpkg-deb")
	list := output(t, "dpkg-deb", "--contents", deb)
	for _, path := range append(everywhere, "/share/zsh/vendor-completions/_genv") {
		require.Regexp(t, `(?m) \./usr`+path+`($| ->)`, list)
	}
	require.Contains(t, list, "/usr/bin/genv-docker -> genv\n")
	for line := range strings.Lines(list) {
		require.Contains(t, line, " root/root ", "all files are root's")
		require.Regexp(t, `^(l|[d-]rw[x-]r-[x-]r-[x-] )`, line, "no file is for others to write, or setuid")
	}
	require.Equal(t, "/etc/genv/config.yaml /etc/genv/policy.yaml", strings.Join(strings.Fields(output(t, "dpkg-deb", "--info", deb, "conffiles")), " "))
	require.Equal(t, "1.0.0\n", output(t, "dpkg-deb", "--field", deb, "Version"))
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		require.Contains(t, output(t, "dpkg-deb", "--info", deb, script), "#!/bin/sh\n")
	}
}

func checkTarball(t *testing.T, tarball string) {
	list := output(t, "tar", "-tzf", tarball)
	for _, path := range append(everywhere, "/share/zsh/site-functions/_genv") {
		require.Regexp(t, `(?m)^genv-1\.0\.0-linux-\w+`+path+`$`, list)
	}
	unit := output(t, "tar", "-xzOf", tarball, "--wildcards", "*/genv-controller.service")
	require.Contains(t, unit, "ExecStart=/usr/local/bin/genv ")
	require.NotContains(t, unit, "/usr/bin/genv")
}

// checkRPM looks into an .rpm with rpm itself.
func checkRPM(t *testing.T, file string) {
	proctest.NeedPrograms(t, "rpm")
	require.Contains(t, output(t, "rpm", "--checksig", "--nosignature", file), "digests OK")
	list := output(t, "rpm", "--query", "--package", "--list", file)
	for _, path := range append(everywhere, "/share/zsh/site-functions/_genv") {
		require.Regexp(t, "(?m)^/usr"+path+"$", list)
	}
	require.NotRegexp(t, `(?m)^/(usr|etc|usr/bin|usr/lib|usr/share|var/.*)$`, list, "folders of other packages")
	require.Equal(t, "/etc/genv/config.yaml\n/etc/genv/policy.yaml\n", output(t, "rpm", "--query", "--package", "--configfiles", file))
	require.Equal(t, "genv 1.0.0 1 localhost", output(t, "rpm", "--query", "--package", "--queryformat", "%{NAME} %{VERSION} %{RELEASE} %{BUILDHOST}", file))
	require.Equal(t, "root root\n", output(t, "/bin/sh", "-c", `rpm --query --package --queryformat '[%{FILEUSERNAME} %{FILEGROUPNAME}\n]' "$1" | sort -u`, "sh", file))
}

// TestVersionsSort: what is built later is an upgrade for dpkg and for rpm.
func TestVersionsSort(t *testing.T) {
	proctest.NeedPrograms(t, "dpkg", "rpm")
	before := ""
	for _, version := range []string{
		"0123abc", "v1.2.0-rc1", "v1.2.0-rc1-3-g0123abc", "v1.2.0-rc2", "v1.2.0", "v1.2.0-3-g0123abc",
		"v1.2.0-3-g0123abc-dirty", "v1.2.0-12-g0000abc", "v1.2.1",
	} {
		this := strings.TrimSpace(output(t, "./version.sh", version, "1700000000"))
		if before != "" {
			output(t, "dpkg", "--compare-versions", before, "lt", this)
			require.Equal(t, "-1\n", output(t, "rpm", "--eval", `%{lua: print(rpm.vercmp("`+before+`", "`+this+`"))}`), "%s < %s", before, this)
		}
		before = this
	}
	require.Equal(t, "0~20231114221320.0123abc\n", output(t, "./version.sh", "0123abc", "1700000000"))
}

// TestExampleOfSudoers: the example allows what `genv remote install` allows.
func TestExampleOfSudoers(t *testing.T) {
	example := proctest.ReadFile(t, "examples/sudoers")
	rules := func(text string) []string {
		text = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, "")
		return strings.Fields(strings.ReplaceAll(text, "\\\n", ""))
	}
	require.Equal(t, rules(onhost.Sudoers("/usr/bin/genv", "", "genv")), rules(string(example)))
}

// TestRelease makes a release twice, in different folders with other modes and times of files: the bytes are the same.
func TestRelease(t *testing.T) {
	proctest.NeedPrograms(t, "git", "tar", "ssh-keygen", "make")
	nfpm(t)
	if found, _ := filepath.Glob("../.tools/cyclonedx-gomod-*/cyclonedx-gomod"); len(found) == 0 {
		skip(t, "cyclonedx-gomod is not installed: `make test` installs it")
	}
	key := filepath.Join(t.TempDir(), "key")
	output(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	first := release(t, filepath.Join(t.TempDir(), "here"), "022", key)
	second := release(t, filepath.Join(t.TempDir(), "somewhere/else"), "077", "")
	sums := proctest.ReadFile(t, filepath.Join(first, "SHA256SUMS"))
	again := proctest.ReadFile(t, filepath.Join(second, "SHA256SUMS"))
	require.Equal(t, string(sums), string(again))
	require.Equal(t, 4, strings.Count(string(sums), "\n"), "%s", sums)
	require.NoFileExists(t, filepath.Join(second, "SHA256SUMS.sig"))

	bill := proctest.ReadFile(t, only(t, first, "genv-2.0.0-linux-*.cdx.json"))
	require.Contains(t, string(bill), "pkg:golang/golang.org/x/crypto@")
	require.NotContains(t, string(bill), "serialNumber")

	// As docs/install.md says.
	public := proctest.ReadFile(t, key+".pub")
	require.NoError(t, os.WriteFile(filepath.Join(first, "signers"), []byte("genv "+string(public)), 0o600))
	const verify = `cd "$1" && ssh-keygen -Y verify -f signers -I genv -n genv -s SHA256SUMS.sig <SHA256SUMS && sha256sum -c --ignore-missing SHA256SUMS`
	output(t, "/bin/sh", "-c", verify, "sh", first)
	require.NoError(t, os.WriteFile(filepath.Join(first, "SHA256SUMS"), append(sums, '\n'), 0o600))
	require.Error(t, exec.Command("/bin/sh", "-c", verify, "sh", first).Run(), "the sums were changed")
}

// TestReleaseIsOfACommit: a release has a version, and nothing that isn't committed.
func TestReleaseIsOfACommit(t *testing.T) {
	proctest.NeedPrograms(t, "git", "tar", "make")
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
	proctest.Output(t, cmd)
	return dir
}

// release makes a release for this architecture in a copy of the source tree, and returns its folder.
func release(t *testing.T, dir, umask, key string) string {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-euc", `umask "$1" && exec make release VERSION=v2.0.0 RELEASE_GO=local KEY="$2"`, "sh", umask, key)
	cmd.Dir = commit(t, dir, umask)
	cmd.Env = append(os.Environ(), "ARCHES="+runtime.GOARCH)
	proctest.Output(t, cmd)
	return filepath.Join(dir, "dist")
}
