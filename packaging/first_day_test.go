package packaging

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// reach gives a jump host a network with each of these hosts, by their addresses: 10.0.N.2.
func reach(t *testing.T, jump *machine, hosts []*machine) (addresses []string) {
	t.Helper()
	for i, h := range hosts {
		near := fmt.Sprintf("eth%d", i)
		out, err := exec.Command("ip", "link", "add", near, "netns", strconv.Itoa(jump.pid), "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(h.pid)).CombinedOutput()
		require.NoError(t, err, string(out))
		jump.sh(fmt.Sprintf("ip addr add 10.0.%d.1/24 dev %s; ip link set %[2]s up", i, near))
		h.sh(fmt.Sprintf("ip addr add 10.0.%d.2/24 dev eth0; ip link set eth0 up", i))
		addresses = append(addresses, fmt.Sprintf("10.0.%d.2", i))
	}
	return addresses
}

// byHand is a job that somebody runs on a GPU without genv, by its PID on the host.
func (m *machine) byHand(user, name string, device, load int) string {
	m.t.Helper()
	m.sh("id " + user + " >/dev/null 2>&1 || useradd --create-home " + user)
	m.must("systemd-run", "--quiet", "--unit="+name, "--uid="+user, "/bin/sleep", "100000")
	pid := m.show(name, "MainPID")
	driver := proctest.Try(gpus.Read(m.path(driverOfTests))).OK(m.t)
	number := proctest.Try(strconv.Atoi(pid)).OK(m.t)
	driver.Apps = append(driver.Apps, gpus.App{PID: number, Device: device, UsedMiB: new(int64(5000)), Load: &load, Name: "python"})
	require.NoError(m.t, driver.Write(m.path(driverOfTests)))
	return pid
}

const firstDayPolicy = `defaults: {non-env-processes: count, idle: {after: 1m, below: 5%, end: true, warn: 30s}}
caps: [{name: two each, gpus: 2, warn: 45s}]
`

// firstDay is a jump host and three GPU hosts, all without genv.
type firstDay struct {
	jump  *machine
	hosts []*machine
	jobs  map[string]*machine
	begun time.Time
}

func startFirstDay(t *testing.T) *firstDay {
	d := &firstDay{jump: startMachine(t), jobs: map[string]*machine{}}
	proctest.NeedPrograms(t, "sshd", "sudo", "ssh-keygen", "script")
	d.hosts = []*machine{startMachine(t), startMachine(t), startMachine(t)}
	addresses := reach(t, d.jump, d.hosts)
	inventory, known := "hosts:\n", ""
	d.jump.sh("useradd --create-home admin; runuser -u admin -- ssh-keygen -q -t ed25519 -N '' -f /home/admin/key")
	for i, h := range d.hosts {
		h.asGPUHost()
		h.boot()
		h.asNew()
		known += h.startSSHD(addresses[i], "")
		h.sh(`useradd --create-home admin; usermod -p '*' admin; echo 'admin ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/admin; install -d -m 0700 -o admin -g admin /home/admin/.ssh`)
		h.write("/home/admin/.ssh/authorized_keys", d.jump.must("cat", "/home/admin/key.pub"), 0o644)
		inventory += fmt.Sprintf("  - {name: gpu-0%d, address: %s, labels: {pool: shared}}\n", i+1, addresses[i])
	}
	d.jump.sh("mkdir -p /etc/genv")
	d.jump.write("/etc/genv/ssh_known_hosts", known, 0o644)
	d.jump.write("/etc/genv/hosts.yaml", inventory, 0o644)
	_ = pack(t, "v1.0.0")
	d.jump.boot()
	return d
}

// install installs all from the package on, as an administrator does.
func (d *firstDay) install() {
	t := d.jump.t
	d.begun = time.Now()
	d.log("apt install", d.jump.install("v1.0.0"))
	out, err := d.jump.as("admin", "export HOME=/home/admin; mkdir -m 0700 ~/.ssh; cp ~/key ~/.ssh/id_ed25519; genv remote install -H @all")
	require.NoError(t, err, out)
	d.log("genv remote install", out)
	require.NotContains(t, out, "nothing can be")
}

// enforces has the controller enforce a policy.
func (d *firstDay) enforces(policy string) {
	d.jump.write("/etc/genv/policy.yaml", policy, 0o644)
	d.log("policy check", d.jump.must("genv", "policy", "check"))
	d.jump.must("systemctl", "restart", "genv-controller")
	d.jump.await("genv-controller", "3 of 3 hosts answered")
	d.log("in force", "")
}

func (d *firstDay) ended() (names string) {
	for _, name := range slices.Sorted(maps.Keys(d.jobs)) {
		if d.jobs[name].show(name, "ActiveState") != "active" {
			names += name + " "
		}
	}
	return names
}

// log notes when something was reached, and what people see then.
func (d *firstDay) log(what, text string) {
	d.jump.t.Logf("%s: %s\n%s", time.Since(d.begun).Round(time.Second), what, text)
}

func (d *firstDay) ask(on int, user, command string) string {
	out, _ := d.hosts[on].as(user, "export HOME=/home/"+user+"; "+command)
	return out
}

func (d *firstDay) await(what string, is func() bool) {
	d.jump.t.Helper()
	require.Eventually(d.jump.t, is, 3*time.Minute, time.Second, what)
	d.log(what, "")
}

// TestTheFirstDay is a lab with three hosts on which people run python by hand, from the packages on: who has too much,
// and what computes nothing, is told and then ended, all within five minutes, and nothing else is.
func TestTheFirstDay(t *testing.T) {
	d := startFirstDay(t)
	t.Parallel() // with the other long ones, once their machines have started
	run := func(on int, user, name string, device, load int) {
		d.hosts[on].byHand(user, name, device, load)
		d.jobs[name] = d.hosts[on]
		time.Sleep(2100 * time.Millisecond) // which is newer counts by the second, give or take one
	}
	run(0, "ann", "ann1", 0, 97)
	run(1, "ann", "ann2", 0, 95)
	run(2, "ann", "ann3", 0, 99)
	run(0, "ben", "ben1", 1, 0)
	run(2, "cyd", "cyd1", 1, 80)
	d.install()
	d.jump.write("/etc/genv/policy.yaml", firstDayPolicy, 0o644)
	dry := []string{"genv", "remote", "enforce", "-H", "@all", "--interval", "0", "--dry-run"}
	d.log("dry run", d.jump.must(dry...))
	out := d.jump.must(append(dry, "--by", "user")...)
	d.log("dry run by user", out)
	require.Contains(t, out, `"two each": 3 of 2 GPUs`)
	d.enforces(firstDayPolicy)
	require.Less(t, time.Since(d.begun), 5*time.Minute)

	d.await("ann was told", d.told(2, "ann", "two each"))
	require.Empty(t, d.ended())
	for i := range d.hosts {
		out := d.ask(i, "ann", "genv notices; genv status; genv why")
		d.log(fmt.Sprintf("ann on gpu-0%d", i+1), out)
		require.Contains(t, out, "Follows    Unless this changes, in ")
	}
	d.await("ann's newest job ended", func() bool { return d.ended() == "ann3 " })
	d.await("ben was told", d.told(0, "ben", "computed nothing on GPU 1"))
	require.Equal(t, "ann3 ", d.ended())
	d.log("ben", d.ask(0, "ben", "genv notices; genv why"))
	d.await("ben's idle job ended", func() bool { return d.ended() == "ann3 ben1 " })
	d.log("history", d.jump.must("genv", "remote", "history"))
	d.log("cyd", d.ask(2, "cyd", "genv notices; genv why"))
	for on, why := range map[int][]string{
		2: {"two each", "What to do Before you take more GPUs, end jobs that you need less.\n"},
		0: {"computed nothing on GPU 1", "What to do Start it again when it computes"},
	} {
		out := d.ask(on, map[int]string{2: "ann", 0: "ben"}[on], "genv why")
		d.log("genv why", out)
		for _, says := range why {
			require.Contains(t, out, says)
		}
	}
	time.Sleep(15 * time.Second)
	require.Equal(t, "ann3 ben1 ", d.ended(), "who keeps the rules loses nothing")
}

// withPeople gives all machines people, some of them in groups, and installs genv.
func (d *firstDay) withPeople(script string) {
	for _, m := range append([]*machine{d.jump}, d.hosts...) {
		m.sh(script)
	}
	d.install()
}

// run runs a command of somebody with GPUs of a host, or has it wait for them.
func (d *firstDay) run(on int, user, unit string, args ...string) {
	args = append([]string{"systemd-run", "--quiet", "--unit=" + unit, "--uid=" + user, "genv", "run", "--gpus"}, args...)
	d.hosts[on].must(append(args, "--", "sleep", "100000")...)
}

// has is how many GPUs of a host somebody has.
func (d *firstDay) has(on int, user string) int {
	out := d.hosts[on].must("genv", "gpus", "--user", user, "--format", "csv", "--no-header", "--no-summary")
	return strings.Count(out, "\n")
}

// told reports whether somebody was told something on a host.
func (d *firstDay) told(on int, user, says string) func() bool {
	return func() bool { return strings.Contains(d.ask(on, user, "genv notices"), says) }
}

// TestAPoolThatAGroupPaidFor: the group has its GPUs back as far as one of its members waits, after a warning.
func TestAPoolThatAGroupPaidFor(t *testing.T) {
	d := startFirstDay(t)
	t.Parallel() // with the other long ones, once their machines have started
	d.withPeople("groupadd nlp; useradd --create-home vic; useradd --create-home wes; useradd --create-home -G nlp nora")
	run, has := d.run, d.has
	all := func() string {
		return fmt.Sprint("vic ", has(0, "vic"), "+", has(1, "vic"), ", wes ", has(0, "wes"), ", nora ", has(0, "nora"))
	}
	run(0, "vic", "vic1", "1")
	run(0, "wes", "wes1", "1")
	run(1, "vic", "vic2", "2")
	require.Eventually(t, func() bool { return all() == "vic 1+2, wes 1, nora 0" }, time.Minute, time.Second)
	d.enforces(`caps:
  - {name: nlp paid 4, users: ["!%nlp"], together: true, of: {labels: {pool: shared}}, gpus: -4, while: {waiting: ["%nlp"]}, warn: 20s}
`)
	time.Sleep(30 * time.Second)
	require.Equal(t, "vic 1+2, wes 1, nora 0", all(), "she doesn't wait")
	run(0, "nora", "nora1", "1", "--wait")
	d.await("vic was told", d.told(0, "vic", "nlp paid 4"))
	d.log("vic", d.ask(0, "vic", "genv notices"))
	d.hosts[0].must("systemctl", "stop", "nora1")
	time.Sleep(30 * time.Second)
	require.Equal(t, "vic 1+2, wes 1, nora 0", all(), "she stopped waiting")
	run(0, "nora", "nora2", "1", "--wait")
	d.await("nora has a GPU", func() bool { return has(0, "nora") == 1 })
	require.Equal(t, "vic 0+2, wes 1, nora 1", all(), "of the person with most, on the host where she waits")
}

// TestQuickStart follows README.md with a jump host and a new GPU host: a person's login installs all that the
// controller needs with one password, and the controller works with that alone.
func TestQuickStart(t *testing.T) {
	jump, host := startMachine(t), startMachine(t)
	proctest.NeedPrograms(t, "sshd", "sudo", "ssh-keygen", "script")
	address := reach(t, jump, []*machine{host})[0]
	host.asGPUHost()
	host.boot()
	host.asNew()
	known := host.startSSHD(address, "")
	host.sh(`useradd --create-home alice; echo alice:secret | chpasswd; echo 'alice ALL=(ALL) ALL' >/etc/sudoers.d/alice`)

	jump.install("v1.0.0")
	require.Equal(t, "root 644", jump.owner("/etc/genv/controller.pub"))
	require.Equal(t, "genv 600", jump.owner("/var/lib/genv-controller/.ssh/id_ed25519"))
	jump.boot()
	jump.must("useradd", "--create-home", "alice")
	out, err := jump.as("alice", "cd; HOME=/home/alice; mkdir -m 0700 $HOME/.ssh; ssh-keygen -q -t ed25519 -N '' -f $HOME/.ssh/id_ed25519; cat $HOME/.ssh/id_ed25519.pub")
	require.NoError(t, err, out)
	host.sh("install -d -m 0700 -o alice -g alice /home/alice/.ssh; echo '" + strings.TrimSpace(out) + "' >/home/alice/.ssh/authorized_keys")
	jump.write("/etc/genv/ssh_known_hosts", known, 0o644)
	jump.write("/etc/genv/hosts.yaml", "hosts: [{name: gpu-01, address: "+address+"}]\n", 0o644)

	install := func(flags string) string {
		t.Helper()
		out, err := jump.as("alice", "export HOME=/home/alice; (sleep 2; echo secret; sleep 5) | script -qec 'genv remote install -H @all --ask-sudo-password "+flags+"' /dev/null")
		require.NoError(t, err, out)
		return out
	}
	out = install("")
	for _, says := range []string{"the account genv is made", "the controller's key may log in as genv", "root owns the state by its service", "installed"} {
		require.Contains(t, out, says)
	}
	require.Contains(t, host.must("getent", "shadow", "genv"), "genv:*:", "no password fits")
	require.Contains(t, host.must("cat", "/etc/sudoers.d/zz-genv"), "\ngenv ALL=(root) NOPASSWD: ")
	require.NotContains(t, host.must("cat", "/etc/sudoers.d/zz-genv"), "alice", "a person gets no rights")
	require.Contains(t, install(""), "unchanged")
	host.sh(`man -w genv-attach; test -s /usr/local/share/bash-completion/completions/genv; test -s /usr/local/share/zsh/site-functions/_genv; test -s /usr/local/share/fish/vendor_completions.d/genv.fish
		grep -qx 'x /var/tmp/genv' /etc/tmpfiles.d/genv-state.conf
		[ /usr/bin/genv -ef /usr/local/bin/genv ]; [ "$(systemctl is-enabled genv-enforce || :)" = disabled ]`)

	jump.must("genv", "remote", "enforce", "-H", "@all", "--interval", "0", "--dry-run")
	jump.must("systemctl", "enable", "--now", "genv-controller")
	jump.await("genv-controller", "1 of 1 host answered")
	jump.must("systemctl", "stop", "genv-controller")

	// All users' shells have genv, and one that fails or hangs breaks none.
	shell := func(kind string) string { return host.must("runuser", "-u", "alice", "--", kind, "-ic", "type genv") }
	host.sh("mv /etc/bash.bashrc /etc/bash.site; ln -s bash.site /etc/bash.bashrc; printf '# a last line without an end' >>/etc/bash.site")
	require.Contains(t, install("--shell-setup"), "genv in the shells of all users, by /etc/bash.bashrc")
	require.Contains(t, install("--shell-setup"), "unchanged")
	require.Contains(t, shell("bash"), "function")
	host.sh("mv /usr/local/bin/genv /tmp/; printf '#!/bin/sh\\ntrap \"\" TERM; sleep 60; exit 1\\n' >/usr/local/bin/genv; chmod 0755 /usr/local/bin/genv")
	require.NotContains(t, shell("bash"), "function")
	host.sh("mv /tmp/genv /usr/local/bin/genv")

	requireKept(t, jump, host)
	purge(t, jump, host)
}

// requireKept requires that --purge removes nothing while an environment is active, or where genv 1.4.3 is.
func requireKept(t *testing.T, jump, host *machine) {
	t.Helper()
	host.sh("useradd bob; systemd-run --quiet --unit=bob --uid=bob genv run --gpus 1 -- sleep 1000; until genv envs --format csv --no-header | grep -q bob; do sleep 0.1; done")
	purge := func() (string, error) {
		return jump.as("alice", "export HOME=/home/alice; (sleep 2; echo secret; sleep 5) | script -qec 'genv remote install -H @all --ask-sudo-password --purge' /dev/null")
	}
	out, err := purge()
	require.Error(t, err, out)
	require.Contains(t, out, "environments are active: 1")
	host.sh("test -x /usr/local/bin/genv; mkdir -p /usr/local/lib/python3.11/dist-packages/genv; systemctl stop bob; until [ -z \"$(genv envs --format csv --no-header)\" ]; do sleep 0.1; done")
	out, err = purge()
	require.Error(t, err, out)
	require.Contains(t, out, "it has genv 1.4.3")
	host.sh("test -x /usr/local/bin/genv; rmdir /usr/local/lib/python3.11/dist-packages/genv")
}

// purge purges a host under a running controller, and then what is left of genv without the program.
func purge(t *testing.T, jump, host *machine) {
	t.Helper()
	// A connected controller brings nothing back.
	const again = "HOME=/home/alice genv remote install -H @all --purge"
	jump.sh("mkdir -p /etc/systemd/system/genv-controller.service.d; printf '[Service]\\nExecStart=\\nExecStart=/usr/bin/genv remote enforce -H @all --interval 0.5\\n' >/etc/systemd/system/genv-controller.service.d/fast.conf; systemctl daemon-reload; systemctl start genv-controller")
	host.sh("echo 'alice ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/alice; until grep -qs 'usage.[s]erve' /proc/[0-9]*/cmdline; do sleep 0.1; done; sleep 1")
	out, err := jump.as("alice", again)
	require.NoError(t, err, out)
	require.Contains(t, out, "the account genv stays")
	host.sh("sleep 2")
	requirePurged(t, host)
	host.sh("test -L /etc/bash.bashrc; tail -n 1 /etc/bash.site | grep -qx '# a last line without an end'")
	host.must("getent", "passwd", "genv")

	// What is left without genv goes, too, unless an environment is active: the copy knows.
	host.sh(`mkdir -p /var/lib/genv /var/tmp/genv; sleep 1000 >/dev/null 2>&1 & printf '{"envs": [{"eid": "2020", "uid": 0, "creation": "20/11/2026 21:10:32", "username": "root",
		"config": {"name": null, "gpu_memory": null, "gpus": 2}, "pids": [%s], "kernel_ids": []}]}' $! >/var/tmp/genv/envs.json; echo $! >/tmp/sleeping`)
	out, err = jump.as("alice", again)
	require.Error(t, err, out)
	require.Contains(t, out, "environments are active: 1")
	host.sh(`kill "$(cat /tmp/sleeping)"`)
	for range 2 {
		out, err = jump.as("alice", again)
		require.NoError(t, err, out)
	}
	requirePurged(t, host)
}

// requirePurged requires that a host has nothing of genv but the account.
func requirePurged(t *testing.T, host *machine) {
	t.Helper()
	require.Empty(t, strings.TrimSpace(host.sh(`find /etc /usr/bin /usr/local /usr/lib/systemd /var /run -name '*genv*' ! -path '/var/lib/apt/*' ! -path '/var/lib/dpkg/*' ! -path '/run/genv-install.lock' ! -path '/run/sudo/*' ! -path '/home/*'
		grep -l genv /etc/bash.site /home/genv/.ssh/authorized_keys || :`)))
}
