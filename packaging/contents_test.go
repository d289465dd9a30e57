package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/install"
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
		text, err := os.ReadFile(filepath.Join(dist[i], "SHA256SUMS"))
		require.NoError(t, err)
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
	need(t, "dpkg-deb")
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
	for _, script := range []string{"preinst", "postinst", "prerm", "postrm"} {
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
	need(t, "rpm")
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
	need(t, "dpkg", "rpm")
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
	example, err := os.ReadFile("examples/sudoers")
	require.NoError(t, err)
	rules := func(text string) []string {
		text = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, "")
		return strings.Fields(strings.ReplaceAll(text, "\\\n", ""))
	}
	require.Equal(t, rules(install.Sudoers("/usr/bin/genv", "", "genv")), rules(string(example)))
}
