package packaging

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// withSecondProgram replaces the installed package by an earlier one, with genv-remote.
const withSecondProgram = `cd /tmp && dpkg-deb --raw-extract genv.deb old && mkdir -p old/usr/libexec/genv && echo program >old/usr/libexec/genv/genv-remote &&
	dpkg-deb -Znone --build old old.deb >/dev/null && dpkg --install old.deb`

// TestLifeOfADeb installs, upgrades, removes and purges where systemd doesn't run, as in a container.
func TestLifeOfADeb(t *testing.T) {
	m := startMachine(t)
	m.install("v1.0.0")
	m.sh(withSecondProgram)
	require.True(t, m.exists("/usr/libexec/genv/genv-remote"))
	m.must("genv", "version")
	require.Equal(t, "/usr/lib/genv/shims", strings.TrimSpace(m.sh("cd /usr/lib/genv/shims && [ nvidia-smi -ef /usr/bin/genv ] && [ docker -ef /usr/bin/genv ] && pwd")))
	account := strings.Split(strings.TrimSpace(m.must("getent", "passwd", "genv")), ":")
	require.Equal(t, []string{"/var/lib/genv-controller", "/bin/sh"}, account[5:])
	require.Contains(t, m.must("getent", "shadow", "genv"), "genv:*:", "no password fits, and the account isn't locked")
	require.Len(t, account[2], 3, "the uid of a system account")
	folders := map[string]string{
		"/var/lib/genv": "root 755", "/var/log/genv": "root 755", "/etc/genv": "root 755",
		"/var/lib/genv-controller": "genv 700", "/var/log/genv-controller": "genv 750",
	}
	for path, owner := range folders {
		require.Equal(t, owner, m.owner(path), path)
	}
	require.False(t, m.exists("/etc/genv/hosts.yaml"), "an example would be a wrong fleet")
	require.Contains(t, m.must("genv", "policy", "check", "/etc/genv/policy.yaml"), "OK")
	m.must("genv", "policy", "check", "/usr/share/doc/genv/examples/policy.yaml")
	m.must("visudo", "-c", "-f", "/usr/share/doc/genv/examples/sudoers")
	require.Empty(t, m.sh("find /etc/systemd/system -name 'genv*'"), "no service is enabled")

	m.write("/etc/genv/hosts.yaml", "hosts: [gpu-01]\n", 0o644)
	m.sh(`echo '# ours' >>/etc/genv/policy.yaml
		echo root >/var/lib/genv/note; echo root >/var/log/genv/audit.jsonl; mkdir -p /var/tmp/genv; echo '{}' >/var/tmp/genv/envs.json
		echo key >/var/lib/genv-controller/.ssh/id_ed25519; chown -R genv:genv /var/lib/genv-controller
		chmod 0711 /var/lib/genv-controller`)
	kept := func() {
		t.Helper()
		require.Contains(t, m.sh("cat /etc/genv/hosts.yaml /etc/genv/policy.yaml"), "# ours")
		m.sh("cat /var/lib/genv/note /var/log/genv/audit.jsonl /var/tmp/genv/envs.json /var/lib/genv-controller/.ssh/id_ed25519")
		require.Equal(t, account, strings.Split(strings.TrimSpace(m.must("getent", "passwd", "genv")), ":"))
	}
	m.install("v1.0.1")
	kept()
	require.False(t, m.exists("/usr/libexec/genv"), "genv is one program by now")
	require.Contains(t, m.must("dpkg-query", "-W", "genv"), "1.0.1")
	require.Equal(t, "genv 711", m.owner("/var/lib/genv-controller"), "a mode that an administrator chose stays")

	m.must("dpkg", "--remove", "genv")
	require.False(t, m.exists("/usr/bin/genv"))
	require.False(t, m.exists("/usr/lib/genv"))
	kept()

	m.install("v1.0.0")
	kept()
	m.must("dpkg", "--purge", "genv")
	left := m.sh("find /etc /usr /var /run -name '*genv*' ! -path '/usr/local/*' ! -path '/var/tmp/*' ! -path '/var/lib/apt/*' 2>/dev/null || :")
	require.Empty(t, strings.TrimSpace(left))
	m.must("getent", "passwd", "genv")
	m.sh("cat /var/tmp/genv/envs.json")
}

// TestAccountsAreApart: someone who has the controller's account can't change what root's
// genv believes or records, nor reach its sockets.
func TestAccountsAreApart(t *testing.T) {
	m := startMachine(t)
	m.install("v1.0.0")
	m.sh(`mkdir -m 0700 /run/genv
		(umask 077; echo secret >/var/lib/genv/note; echo secret >/var/log/genv/audit.jsonl; echo secret >/run/genv/lock)`)
	for _, try := range []string{
		"echo x >/var/lib/genv/new", "echo x >>/var/lib/genv/note", "rm -f /var/lib/genv/note", "mv /var/lib/genv /var/lib/genv-controller/",
		"echo x >/var/log/genv/new", "cat /var/log/genv/audit.jsonl", "rm -f /var/log/genv/audit.jsonl",
		"echo x >/run/genv/new", "ls /run/genv", "cat /run/genv/lock", "mv /run/genv /run/other",
		"echo x >>/etc/genv/policy.yaml", "echo x >/etc/genv/hosts.yaml", "echo x >>/usr/bin/genv",
		"mkdir /run/genv-controller", "rmdir /var/lib/genv-controller", "mv /var/log/genv-controller /var/log/genv-other",
	} {
		out, err := m.as("genv", try)
		require.Error(t, err, "%s: %s", try, out)
	}
	out, err := m.as("genv", "echo x >/var/lib/genv-controller/memory && echo x >/var/log/genv-controller/audit.jsonl")
	require.NoError(t, err, out)
	out, err = m.as("nobody", "ls /var/lib/genv-controller || ls /var/log/genv-controller")
	require.Error(t, err, out)

	// A root that uses the controller's folders by mistake is refused, since the account could replace its files.
	m.sh("install -d -o genv -g genv /run/genv-controller; printf 'hosts: [localhost]\n' >/tmp/hosts.yaml")
	out, err = m.run("env", "GENV_CONFIG_DIR=off", "genv", "remote", "enforce", "-H", "/tmp/hosts.yaml", "--socket", "/run/genv-controller/controller.sock")
	require.Error(t, err, out)
	require.Contains(t, out, "--socket")
	out, err = m.run("env", "GENV_CONFIG_DIR=off", "genv", "remote", "enforce", "-H", "/tmp/hosts.yaml", "--socket", "off", "--state-dir", "/var/lib/genv-controller")
	require.Error(t, err, out)
	require.Contains(t, out, "--state-dir")
}

// TestAccountThatExists: an account or a group of an administrator is used as it is.
func TestAccountThatExists(t *testing.T) {
	m := startMachine(t)
	m.must("groupadd", "--system", "genv")
	m.install("v1.0.0")
	require.Equal(t, "genv\n", m.must("id", "-gn", "genv"))

	m.must("dpkg", "--purge", "genv")
	m.must("userdel", "genv")
	m.must("useradd", "--shell", "/bin/bash", "--home-dir", "/srv/genv", "genv")
	m.install("v1.0.0")
	require.Contains(t, m.must("getent", "passwd", "genv"), "/srv/genv:/bin/bash")
	require.Equal(t, "genv 700", m.owner("/var/lib/genv-controller"))

	m.must("dpkg", "--purge", "genv")
	m.must("userdel", "genv")
	m.must("useradd", "--non-unique", "--uid", "0", "genv")
	out, err := m.run("dpkg", "--install", "/tmp/genv.deb")
	require.Error(t, err)
	require.Contains(t, out, "has the uid 0")
	require.False(t, m.exists("/var/lib/genv-controller"))
}

// TestLifeOfAnRPM installs, upgrades and removes with rpm, with its own database. What
// the package depends on is not in that.
func TestLifeOfAnRPM(t *testing.T) {
	m := startMachine(t)
	proctest.NeedPrograms(t, "rpm")
	rpm := func(action, version string) string {
		t.Helper()
		m.copyIn(only(t, pack(t, version), "*.rpm"), "/tmp/genv.rpm", 0o644)
		return m.must("rpm", "--nodeps", action, "/tmp/genv.rpm")
	}
	rpm("--install", "v1.0.0")
	require.Contains(t, m.must("getent", "passwd", "genv"), ":/var/lib/genv-controller:/bin/sh")
	require.Equal(t, "genv 700", m.owner("/var/lib/genv-controller"))
	require.Equal(t, "root 755", m.owner("/var/lib/genv"))
	m.must("genv", "version")
	require.Empty(t, m.sh("find /etc/systemd/system -name 'genv*'"), "no service is enabled")
	m.sh("echo '# ours' >>/etc/genv/policy.yaml; echo 'hosts: [a]' >/etc/genv/hosts.yaml; echo x >/var/lib/genv-controller/memory.json")
	m.must("systemctl", "enable", "genv-controller") // works on files alone

	rpm("--upgrade", "v1.0.1")
	require.Contains(t, m.must("rpm", "--query", "genv"), "1.0.1")
	require.Contains(t, m.sh("cat /etc/genv/policy.yaml"), "# ours")
	require.True(t, m.exists("/etc/systemd/system/multi-user.target.wants/genv-controller.service"))

	m.must("rpm", "--erase", "genv")
	m.sh("cat /etc/genv/hosts.yaml /var/lib/genv-controller/memory.json")
	require.Contains(t, m.sh("cat /etc/genv/policy.yaml*"), "# ours", "what was changed is kept as .rpmsave")
	left := m.sh("find /etc/systemd /usr -name '*genv*' ! -path '/usr/local/*' 2>/dev/null || :")
	require.Empty(t, strings.TrimSpace(left))
}

// TestUnitsAreValid has systemd read the units where the package is installed.
func TestUnitsAreValid(t *testing.T) {
	m := startMachine(t)
	proctest.NeedPrograms(t, "systemd-analyze")
	m.install("v1.0.0")
	for _, unit := range []string{"genv-controller.service", "genv-enforce.service", "genv-guard.service", "genv-host.service", "genv-host.socket"} {
		out := m.must("systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/"+unit)
		require.Empty(t, out, unit)
	}
	m.must("systemd-tmpfiles", "--create", "genv.conf")
	require.Equal(t, "root 755", m.owner("/run/genv"))
	m.sh("mkdir -p /var/tmp/genv; echo '{}' >/var/tmp/genv/envs.json; touch -d '2000-01-01' /var/tmp/genv/envs.json /var/tmp/genv")
	m.must("systemd-tmpfiles", "--clean")
	require.True(t, m.exists("/var/tmp/genv/envs.json"), "state files don't grow old")
}

// TestUnitsAreHardened keeps the exposure that systemd computes, from 0 to 10, low.
func TestUnitsAreHardened(t *testing.T) {
	proctest.NeedPrograms(t, "systemd-analyze")
	for unit, threshold := range map[string]string{
		"systemd/genv-controller.service": "18", "../remote/install/onhost/systemd/genv-enforce.service": "40", "../remote/install/onhost/systemd/genv-host.service": "40", "systemd/genv-guard.service": "80",
	} {
		path := proctest.Try(filepath.Abs(unit)).OK(t)
		proctest.Output(t, exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold="+threshold, path))
	}
}

// TestTheGuardsServiceHasNoMountsOfItsOwn: the guard's pins are in /sys/fs/bpf, which all of the machine has to see.
func TestTheGuardsServiceHasNoMountsOfItsOwn(t *testing.T) {
	unit := proctest.ReadFile(t, "systemd/genv-guard.service")
	require.NotRegexp(t, `(?m)^(Private\w+|Protect(System|Home|Kernel\w*|ControlGroups|Proc|Hostname)|Read(Write|Only)Paths|InaccessiblePaths|ExecPaths|NoExecPaths|BindPaths|BindReadOnlyPaths|TemporaryFileSystem|Mount\w+|Root\w+|DynamicUser|ProcSubset|RemoveIPC)=`, string(unit))
}

// TestOneAccount: root's `genv remote` is the controller's account, members of its group see everything, and the
// record says who acted.
func TestOneAccount(t *testing.T) {
	const unit = "genv-controller.service"
	m := startGPUHost(t, "sshd", "sudo", "ssh-keygen")
	m.asFleet()
	m.hasten(unit)
	m.write("/etc/genv/hosts.yaml", "hosts: [{name: gpu-01, address: 127.0.0.1}]\n", 0o644)
	m.sh(`mount -t tmpfs -o mode=0700 none /root # not this machine's keys
		useradd --create-home --password '*' --groups genv alice
		useradd --create-home bob`)
	m.must("systemctl", "start", unit)
	m.await(unit, "1 of 1 host answered")

	// Alice's login, who became root; its agent and its configuration aren't the account's.
	m.sh("mkdir -p /root/.config/genv; echo 'colour: red' >/root/.config/genv/config.yaml; chmod 0755 /root")
	sudo := func(command string) (string, error) {
		return m.run("/bin/sh", "-c", "echo $(id -u alice) >/proc/self/loginuid; export HOME=/root XDG_STATE_HOME=/root SSH_AUTH_SOCK=/root/agent; "+command)
	}
	for _, command := range []string{"gpus", "doctor", "enforce -H @all --interval 0 --dry-run", "report", "exempt --user bob --for 1h --reason deadline", "top --plain --once"} {
		out, err := sudo("genv remote " + command)
		require.NoError(t, err, "%s: %s", command, out)
	}
	for _, command := range []string{"install -H @all --check", "activate -H @all"} {
		out, err := sudo("rm -f /root/.config/genv/config.yaml; genv remote " + command)
		require.Error(t, err, "%s: %s", command, out)
		require.Contains(t, out, "gpu-01", "with root's own ssh, which knows no host")
	}
	m.write("/etc/genv/hooks.yaml", "hooks: [{command: [/bin/sh, -c, 'id -un; exit 3']}]\n", 0o644)
	notify := "genv policy test-notify --policy /etc/genv/hooks.yaml --to bob"
	out, err := sudo(notify)
	require.Error(t, err)
	require.Contains(t, out, "failed: exit status 3: genv\n")
	out, err = m.as("alice", notify)
	require.Error(t, err)
	require.Contains(t, out, "run it with sudo")
	alice := strings.TrimSpace(m.must("id", "-u", "alice"))
	require.Contains(t, m.sh("cat /var/log/genv-controller/audit.jsonl"), `"alice (uid `+alice+`), as genv"`)

	out, err = m.as("alice", "genv remote history && genv remote top --plain --once")
	require.NoError(t, err, out)
	require.Contains(t, out, "deadline")
	for user, commands := range map[string][]string{
		"alice": {"exempt --user bob --for 1h --reason deadline"},
		"bob":   {"exempt --list", "history", "report", "top --plain --once"},
	} {
		for _, command := range commands {
			out, err := m.as(user, "genv remote "+command)
			require.Error(t, err, "%s: %s", command, out)
			require.Contains(t, strings.ToLower(out), "run it with sudo", "%s: %s", user, command)
		}
	}
	out, err = m.as("alice", `export HOME=/home/alice; cd; mkdir -m 0700 .ssh; ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519; cp .ssh/id_ed25519.pub .ssh/authorized_keys
		echo "127.0.0.1 $(cut -d' ' -f1,2 /etc/ssh/test_key.pub)" >.ssh/known_hosts
		genv remote gpus && genv remote doctor -H @all; genv remote enforce -H @all --interval 0 --dry-run`)
	require.Error(t, err, "alice has no rights on the host")
	require.Contains(t, out, "run it with sudo: only the controller's account has rights on the hosts")
	require.NotContains(t, out, "NOPASSWD")
	out, err = m.as("alice", "export HOME=/home/alice; mkdir -p ~/.config/genv; echo 'account: bob' >~/.config/genv/config.yaml; genv remote gpus")
	require.Error(t, err)
	require.Contains(t, out, "account is read at the top of /etc/genv/config.yaml alone")
}

// TestBookedGPUs: what was reserved is free when it begins, after a warning, and who reserves keeps to the policy. A lab's
// rule: book before you use, one booking at a time, then a day's pause.
func TestBookedGPUs(t *testing.T) {
	d := startFirstDay(t)
	t.Parallel()
	d.withPeople("groupadd lab; useradd --create-home bea; useradd --create-home -G lab abe")
	has := d.has
	d.run(2, "bea", "bea1", "1")
	d.run(2, "bea", "bea2", "1")
	d.enforces(`defaults: {warn: {for: 10m, rules: {reservations: 20s}}}
reservations: [{users: ["%lab"], gpus: 3, longest: 1d, ahead: 14d, at-once: 1, pause: 1d}]
`)
	from := strings.TrimSpace(d.hosts[2].must("date", "-d", "+2 minutes", "+%Y-%m-%d %H:%M"))
	reserve := "genv reserve --gpus 1 --for 12h --from '" + from + "'"
	d.await("abe reserved", func() bool {
		out := d.ask(2, "abe", reserve)
		d.log("abe", out)
		return strings.Contains(out, "Reserved: 1 GPU")
	})
	out := d.ask(2, "abe", "genv reserve --gpus 1 --from 'tomorrow 14:00' --for 1h")
	d.log("another one", out)
	require.NotContains(t, out, "Reserved")
	d.log("bea", d.ask(2, "bea", "genv reserve --gpus 1 --for 1h"))
	d.await("bea was told", d.told(2, "bea", "abe"))
	d.log("bea", d.ask(2, "bea", "genv notices"))
	require.Equal(t, 2, has(2, "bea"), "until it begins")
	d.await("one of bea's went", func() bool { return has(2, "bea") == 1 })
}
