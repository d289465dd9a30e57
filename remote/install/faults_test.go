package install_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install"
	"github.com/seed-3119e985/genv/remote/install/onhost"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// fault is what is wrong with a host, and what is said about it.
type fault struct {
	before, after string // lines that the host runs as root
	step          string // in which the script runs do
	do            string
	want, next    string
	class         remote.Class
}

// faults are those of a host before it is looked at, and those that begin afterwards.
func faults() map[string]fault {
	return map[string]fault{
		"full disk": {
			before: "for d in /var/lib /root /usr/local/bin; do mount -t tmpfs -o size=20m,mode=755 none $d; done", after: "umount /var/lib /root /usr/local/bin",
			want: "no folder of root's alone with room for the program", next: "100 MB of free space", class: remote.CommandFailed,
		},
		"a disk that gets full": {
			before: "mount -t tmpfs -o size=30m,mode=755 none /usr/local/bin", after: "umount /usr/local/bin",
			step: "upload", do: "head -c 90000000 /dev/zero >/usr/local/bin/fill 2>/dev/null",
			want: "no space left on device", next: "free space", class: remote.CommandFailed,
		},
		"noexec": {
			step: "upload", do: "mount -t tmpfs -o noexec,mode=755 none /usr/local/bin", after: "umount /usr/local/bin",
			want: "doesn't run from /usr/local/bin/genv", next: "noexec", class: remote.CommandFailed,
		},
		"only known programs run": {
			step: "checksum", do: "chmod a-x $own/genv", after: "true",
			want: "doesn't run from /usr/local/bin/genv", next: "known programs", class: remote.CommandFailed,
		},
		"read-only": {
			before: "mount --bind -o ro /usr/local/bin /usr/local/bin && mount -o remount,bind,ro /usr/local/bin", after: "umount /usr/local/bin",
			want: "read-only file system", next: "mounts that are read-only", class: remote.CommandFailed,
		},
		"no visudo": {
			before: "rm -f /etc/sudoers.d/zz-genv; mount --bind /dev/null /usr/sbin/visudo", after: "umount /usr/sbin/visudo",
			want: "no visudo", next: "install sudo", class: remote.InstallRefused,
		},
		"visudo refuses": {
			before: `rm -f /etc/sudoers.d/zz-genv; printf "#!/bin/sh\necho bad; exit 1\n" >/tmp/v; chmod 755 /tmp/v; mount --bind /tmp/v /usr/sbin/visudo`,
			after:  "umount /usr/sbin/visudo; rm /tmp/v", want: "visudo refuses the lines for genv: bad", next: "visudo -c", class: remote.CommandFailed,
		},
		"visudo refuses them among the others": {
			before: `rm -f /etc/sudoers.d/zz-genv; printf "#!/bin/sh\n[ \$1 = -cf ] || [ ! -e /etc/sudoers.d/zz-genv ]\n" >/tmp/v; chmod 755 /tmp/v; mount --bind /tmp/v /usr/sbin/visudo`,
			after:  "umount /usr/sbin/visudo; rm /tmp/v", want: "visudo refuses the lines for genv", next: "visudo -c", class: remote.CommandFailed,
		},
		"package": {
			before: `printf "#!/bin/sh\necho gpu-tools: \$2\n" >/tmp/d; chmod 755 /tmp/d; mount --bind /tmp/d /usr/bin/dpkg`,
			after:  "umount /usr/bin/dpkg; rm /tmp/d", want: "/usr/local/bin/genv belongs to the package gpu-tools", next: "upgrade the package gpu-tools", class: remote.InstallRefused,
		},
		"a folder above it of others": {
			before: "chown operator /usr/local", after: "chown root /usr/local",
			want: "others than root may change what is in /usr/local ", next: "chown root /usr/local", class: remote.InstallRefused,
		},
		"the program changes meanwhile": {
			step: "visudo", do: "echo >>/usr/local/bin/genv", before: "rm -f /etc/sudoers.d/zz-genv", after: "true",
			want: "another process changed the program meanwhile", next: "run it again", class: remote.CommandFailed,
		},
	}
}

// TestFaults: on hosts that can't take genv nothing is changed, and the error says why and what to do.
func TestFaults(t *testing.T) {
	t.Parallel()
	f, old, current := startHost(t)
	for name, tt := range faults() {
		t.Run(name, func(t *testing.T) {
			f.t = t
			f.reset(old)
			if tt.before != "" {
				out, err := f.on("sudo -n sh -c " + remote.Quote(tt.before))
				require.NoError(t, err, out)
			}
			i := f.installer(current)
			if tt.step != "" {
				i.Runner = changed{f.client, atStep(tt.step, tt.do)}
			}
			_, err := i.Install(t.Context(), host)
			out, failed := f.on("sudo -n sh -c " + remote.Quote(tt.after))
			require.NoError(t, failed, out)
			require.ErrorContains(t, err, tt.want)
			require.Contains(t, remote.NextStepOf(err), tt.next)
			require.Equal(t, tt.class, remote.ClassOf(err))
			if tt.do != "echo >>/usr/local/bin/genv" {
				f.requireWorking(old)
			}
			f.requireClean()
		})
	}
}

// TestPlaces: what is in the place of genv, and what sudoers has, decides what is done.
func TestPlaces(t *testing.T) {
	t.Parallel()
	f, old, current := startHost(t)
	t.Run("a link is not followed", func(t *testing.T) {
		f.reset(nil)
		require.NoError(t, os.Symlink("/etc/passwd", f.place()))
		require.ErrorContains(t, proctest.Try(f.installer(current).Install(t.Context(), host)).Err, "is a symbolic link to /etc/passwd")
	})
	t.Run("a folder", func(t *testing.T) {
		f.reset(nil)
		require.NoError(t, os.Mkdir(f.place(), 0o755))
		require.ErrorContains(t, proctest.Try(f.installer(current).Install(t.Context(), host)).Err, "is not a file")
	})
	t.Run("no upgrade without the flag", func(t *testing.T) {
		f.reset(old)
		i := f.installer(current)
		i.Options.Upgrade = false
		require.ErrorContains(t, proctest.Try(i.Install(t.Context(), host)).Err, "is another genv: version v1, sha256 "+old.Sum[:12])
		f.requireWorking(old)
	})
	t.Run("what is missing is repaired", func(t *testing.T) {
		f.reset(old)
		f.forget()
		require.Equal(t, onhost.Repaired, done(t, f.installer(old).Install, host).Result)
		f.requireWorking(old)
	})
	t.Run("another architecture", func(t *testing.T) {
		f.reset(nil)
		other := &install.Binary{Data: current.Data, Sum: current.Sum, Arch: map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]}
		_, err := f.installer(other).Install(t.Context(), host)
		require.ErrorContains(t, err, "the host is "+runtime.GOARCH+", and this genv is for "+other.Arch)
		require.Contains(t, remote.NextStepOf(err), "--binary-"+runtime.GOARCH)
		done(t, f.installer(other, old).Install, host)
		f.requireWorking(old)
		done(t, f.installer(other).Uninstall, host) // by the one that is there
		require.NoFileExists(t, f.place())
	})
	t.Run("a disk that users have filled", func(t *testing.T) { // of which root may still write a part
		f.reset(nil)
		df := "#!/bin/sh\necho head\necho /dev/sda 9999999 5555555 0 100% /\n"
		require.NoError(t, proctest.WriteProgram(filepath.Join(f.Dir, "df"), []byte(df)))
		proctest.Try(f.on("sudo -n mount --bind " + f.Dir + "/df /usr/bin/df")).OK(t)
		done(t, f.installer(old).Install, host)
		proctest.Try(f.on("sudo -n umount /usr/bin/df")).OK(t)
	})
	t.Run("another path", func(t *testing.T) {
		f.reset(nil)
		i := f.installer(current)
		h := host
		h.GenvPath = "/usr/local/genv/bin/genv"
		require.Equal(t, h.GenvPath, done(t, i.Install, h).Path)
		require.FileExists(t, filepath.Join(f.Local(), "genv/lib/genv/shims/docker"))
		done(t, i.Uninstall, h)
		require.NoFileExists(t, filepath.Join(f.Local(), "genv/bin/genv"))
	})
}

// TestAccounts: whom sudoers allows, and what others wrote there.
func TestAccounts(t *testing.T) {
	t.Parallel()
	f, old, current := startHost(t)
	rules := filepath.Join(f.SudoersFolder(), remote.SudoersFile)
	t.Run("other accounts stay", func(t *testing.T) {
		f.reset(old)
		require.NoError(t, os.WriteFile(rules, []byte(remote.SudoersLine("alice", remote.DefaultGenv)+"\n"), 0o440))
		i := f.installer(current)
		i.Options.Account = "bob"
		require.True(t, done(t, i.Install, host).Sudoers)
		content := proctest.ReadFile(t, rules)
		require.Equal(t, onhost.Sudoers(remote.DefaultGenv, f.sudoPath(), "alice", "bob"), string(content))
	})
	t.Run("the file of an earlier version goes", func(t *testing.T) {
		f.reset(old)
		earlier := filepath.Join(f.SudoersFolder(), "genv")
		require.NoError(t, os.Remove(rules))
		wildcards := strings.ReplaceAll("alice ALL=(root) NOPASSWD: G usage snapshot, G usage snapshot *, G usage execute, G usage serve *\n", "G", remote.DefaultGenv)
		require.NoError(t, os.WriteFile(earlier, []byte(wildcards), 0o440))
		i := f.installer(current)
		i.Options.Account = "bob"
		done(t, i.Install, host)
		require.NoFileExists(t, earlier)
		content := proctest.ReadFile(t, rules)
		require.Equal(t, onhost.Sudoers(remote.DefaultGenv, f.sudoPath(), "alice", "bob"), string(content))
		require.NoError(t, os.WriteFile(earlier, []byte(wildcards), 0o440))
		done(t, i.Uninstall, host)
		require.NoFileExists(t, earlier)
		require.NoFileExists(t, rules)
	})
	t.Run("an account that isn't there", func(t *testing.T) {
		f.reset(nil)
		i := f.installer(current)
		i.Options.Account = "mallory"
		require.ErrorContains(t, proctest.Try(i.Install(t.Context(), host)).Err, `has no account "mallory"`)
		f.requireWorking(nil)
	})
	t.Run("lines of others stay", func(t *testing.T) {
		f.reset(old)
		const content = "bob ALL=(root) NOPASSWD: /bin/true\n"
		require.NoError(t, os.WriteFile(rules, []byte(content), 0o440))
		outcome, err := f.installer(current).Install(t.Context(), host)
		require.NoError(t, err, "the login may run anything")
		require.Len(t, outcome.Notes, 1)
		i := f.installer(current)
		i.Options.Account = "bob"
		_, err = i.Install(t.Context(), host)
		require.ErrorContains(t, err, "a controller can't run it as root")
		require.Contains(t, remote.NextStepOf(err), "must have `bob ALL=(root) NOPASSWD: /usr/local/bin/genv usage snapshot")
		left := proctest.ReadFile(t, rules)
		require.Equal(t, content, string(left))
	})
}

// TestUninstall: what belongs to genv goes, and what others wrote stays.
func TestUninstall(t *testing.T) {
	t.Parallel()
	f := startFleet(t, sshd.Named("gpu-01")...)
	old := genv(t, "v1")
	rules := filepath.Join(f.SudoersFolder(), remote.SudoersFile)
	f.reset(old)
	i := f.installer(old)
	i.Options.Check = true
	outcome := done(t, i.Uninstall, host)
	require.Equal(t, onhost.Uninstalled, outcome.Result)
	f.requireWorking(old)
	require.NoError(t, os.WriteFile(rules, []byte("bob ALL=(root) NOPASSWD: /bin/true\n"), 0o440))
	require.NoError(t, os.WriteFile(filepath.Join(f.Local(), "bin/.genv-install-x"), nil, 0o600))
	docker := filepath.Join(f.Local(), "lib/genv/shims/docker")
	require.NoError(t, os.Remove(docker))
	require.NoError(t, os.Symlink("/bin/true", docker))
	outcome = done(t, f.installer(old).Uninstall, host)
	require.False(t, outcome.Sudoers)
	require.Contains(t, outcome.Notes[0], "has lines that genv did not write")
	require.NoFileExists(t, f.place())
	require.FileExists(t, rules)
	require.FileExists(t, docker)
	f.requireClean()
}

// TestShimsInAFolderOfOthers: nothing is written there as root, since a link in their place
// would have it written anywhere. The program is installed all the same.
func TestShimsInAFolderOfOthers(t *testing.T) {
	t.Parallel()
	f := startFleet(t, sshd.Named("gpu-01")...)
	current := genv(t, "v2")
	f.reset(nil)
	lib, elsewhere := filepath.Join(f.Local(), "lib"), filepath.Join(f.Dir, "elsewhere")
	alice := proctest.Try(sshd.UID("alice")).OK(t)
	require.NoError(t, os.MkdirAll(filepath.Join(lib, "genv"), 0o755))
	require.NoError(t, os.MkdirAll(elsewhere, 0o755))
	require.NoError(t, proctest.WriteProgram(filepath.Join(elsewhere, "docker"), []byte("another program")))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(lib, "genv", "shims")))
	require.NoError(t, os.Chown(filepath.Join(lib, "genv"), int(alice), 0))
	for _, want := range []string{onhost.Installed, onhost.Unchanged} {
		outcome := done(t, f.installer(current).Install, host)
		require.Equal(t, want, outcome.Result)
		require.False(t, outcome.Shims)
		require.Contains(t, outcome.Notes, "the shims are not linked: others than root may change what is in /usr/local/lib/genv (uid 60801, mode 755)")
	}
	f.requireWorking(current)
	data := proctest.ReadFile(t, filepath.Join(elsewhere, "docker"))
	require.Equal(t, "another program", string(data))

	require.NoError(t, os.Remove(filepath.Join(elsewhere, "docker")))
	require.NoError(t, os.Symlink("../../../bin/genv", filepath.Join(elsewhere, "docker")))
	done(t, f.installer(current).Uninstall, host)
	proctest.Try(os.Lstat(filepath.Join(elsewhere, "docker"))).OK(t)
}
