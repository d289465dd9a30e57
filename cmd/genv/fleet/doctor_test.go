package fleet_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/seed-3119e985/genv/cmd/genv/checkup"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	remotedoctor "github.com/seed-3119e985/genv/remote/doctor"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// sickHost is a host with one fault, and what `genv remote doctor` says about it.
type sickHost struct {
	name   string
	rights sshd.Rights
	smi    string // gpus.Fault…
	genv   string // a script in the place of genv
	// ail brings the fault about, with the state files in place.
	ail func(t *testing.T, f *sshd.Fleet, h *sshd.Host)
	// config are lines of ssh_config for a host that the fleet doesn't have.
	config string

	check  doctor.Name
	status doctor.CheckStatus // failed if it is empty
	cause  doctor.Cause
	detail string // a part of what was found
	next   string // a part of the next step
}

func sickLogins() []sickHost {
	return []sickHost{
		{name: "well"},
		{
			name: "no-name.invalid", config: "Port 22", check: doctor.NameResolution, cause: "no-such-name", detail: "no-name.invalid",
			next: "check the resolver",
		},
		{
			name: "refused", config: "HostName 127.0.0.1\n\tPort $CLOSED", check: doctor.TCP, cause: "connection-refused",
			detail: "connection refused", next: "systemctl start ssh",
		},
		{
			name: "silent", config: "HostName 127.0.0.1\n\tPort $SILENT", check: doctor.TCP, cause: "silent",
			detail: "did not finish the login", next: "check sshd",
		},
		{
			name: "unknown-key", config: "HostName $WELL\n\tUser only-usage\n\tHostKeyAlias stranger", check: doctor.HostKey,
			cause: "host-key", detail: "SHA256:", next: "known_hosts",
		},
		{
			name: "changed-key", config: "HostName $WELL\n\tUser only-usage\n\tHostKeyAlias changed", check: doctor.HostKey,
			cause: "host-key-changed", detail: "SHA256:", next: "ssh-keygen -R",
		},
		{name: "key-refused", config: "HostName $WELL\n\tUser mallory", check: doctor.Login, cause: "auth", detail: "mallory", next: "ssh -v HOST true"},
		{
			name: "password", rights: sshd.NeedsPassword, check: doctor.Sudo, cause: "sudo", detail: "wants a password",
			next: "needs-password ALL=(root) NOPASSWD: ",
		},
		{name: "no-rule", rights: sshd.NotInSudoers, check: doctor.Sudo, cause: "sudo", detail: "knows no rule", next: "not-in-sudoers ALL=(root) NOPASSWD: "},
		{
			name: "covers-little", rights: sshd.OnlySnapshot, check: doctor.Sudo, cause: "sudo-refused",
			detail: "covers usage snapshot of ", next: "only-snapshot ALL=(root) NOPASSWD: ",
		},
		{
			name: "covers-much", rights: sshd.AllOfGenv, check: doctor.Sudo, status: doctor.Warning, cause: "sudo-covers-all-of-genv",
			detail: "any program as root", next: "all-of-genv ALL=(root) NOPASSWD: ",
		},
		{
			name: "covers-all", rights: sshd.MaySudo, check: doctor.Sudo, status: doctor.Warning, cause: "sudo-covers-everything",
			detail: "covers every command", next: "an account of its own",
		},
		{name: "no-genv", rights: sshd.NoGenv, check: doctor.Genv, cause: "genv-missing", detail: "there is no genv", next: "genv remote install"},
		{
			name: "old-genv", rights: sshd.MaySudo143, check: doctor.Genv, status: doctor.Warning, cause: "genv-1.4.3", detail: "version 1.4.3",
			next: "docs/migrating.md",
		},
		{
			name:   "other-protocol",
			genv:   `[ "$1" = version ] && exec echo v9; exec echo '{"schema":"genv.doctor/1","genv":{"version":"v9","protocol":9},"checks":[]}'`,
			rights: sshd.MaySudo,
			check:  doctor.Genv, cause: "version", detail: "version v9, protocol 9", next: "the same version",
		},
		{
			name:   "babbles",
			genv:   `[ "$1" = version ] && exec echo v9; exec echo '{"schema":"genv.doctor/1","checks":[{"name":"disk","status":"splendid"}]}'`,
			rights: sshd.MaySudo,
			check:  doctor.Genv, cause: "invalid-output", detail: `"splendid"`, next: "run `genv doctor --format json`",
		},
	}
}

func sickMachines() []sickHost {
	return []sickHost{
		{name: "no-driver", smi: gpus.FaultNoDriver, check: doctor.DriverState, cause: "no-driver", detail: "couldn't communicate", next: "modprobe nvidia"},
		{name: "mismatch", smi: gpus.FaultMismatch, check: doctor.DriverState, cause: "driver-version-mismatch", detail: "version mismatch", next: "reboot"},
		{name: "hung", smi: gpus.FaultHang, check: doctor.DriverState, cause: "nvidia-smi-hung", detail: "did not answer in time", next: "dmesg"},
		{
			name: "slow-calls", ail: func(t *testing.T, _ *sshd.Fleet, h *sshd.Host) {
				d := proctest.Try(gpus.Read(h.GPUs)).OK(t)
				d.Devices[3].NoPersistence = true
				require.NoError(t, d.Write(h.GPUs))
			},
			check: doctor.DriverState, status: doctor.Warning, cause: "persistence-off", detail: "off on GPU 3", next: "nvidia-persistenced",
		},
		{
			name: "bad-mode", ail: func(t *testing.T, _ *sshd.Fleet, h *sshd.Host) {
				uid := proctest.Try(sshd.UID("bob")).OK(t)
				require.NoError(t, os.Chown(h.State, int(uid), int(uid)))
				require.NoError(t, os.Chmod(h.State, 0o755))
			},
			check: doctor.StateFolder, cause: "state-mode", detail: "has mode 0755", next: "chmod the folder to 0777",
		},
		{
			name: "corrupt", ail: func(t *testing.T, _ *sshd.Fleet, h *sshd.Host) {
				require.NoError(t, os.WriteFile(filepath.Join(h.State, "envs.json"), []byte(`{"envs": [`), 0o666))
			},
			check: doctor.StateFolder, cause: "state-corrupt", detail: "envs.json of uid 0", next: "genv envs --reset",
		},
		{
			name: "odd", ail: func(t *testing.T, _ *sshd.Fleet, h *sshd.Host) {
				require.NoError(t, os.WriteFile(filepath.Join(h.State, "envs.json"), []byte(`{"envs": [5]}`), 0o666))
			},
			check: doctor.StateFolder, status: doctor.Warning, cause: "state-odd", detail: "environment no. 1 of the list can't be read and is left out",
			next: "find out who wrote it",
		},
		{
			name: "link", ail: func(t *testing.T, _ *sshd.Fleet, h *sshd.Host) {
				require.NoError(t, os.Remove(filepath.Join(h.State, "devices.json")))
				require.NoError(t, os.Symlink("/etc/shadow", filepath.Join(h.State, "devices.json")))
			},
			check: doctor.StateFolder, cause: "state-unsafe", detail: "devices.json of uid 0 is a symbolic link",
			next: "find out who put it there",
		},
		{
			name: "lost", ail: func(t *testing.T, _ *sshd.Fleet, h *sshd.Host) {
				require.NoError(t, os.Remove(filepath.Join(h.State, "envs.json")))
			},
			check: doctor.StateFolder, cause: "state-lost", detail: "envs.json is missing", next: "genv envs --reset",
		},
		{
			name: "clock", ail: func(t *testing.T, _ *sshd.Fleet, h *sshd.Host) {
				require.NoError(t, os.WriteFile(filepath.Join(h.Dir, "clock"), nil, 0o644))
			},
			check: doctor.Clock, cause: "clock-wrong", detail: "behind the controller", next: "chrony",
		},
		{
			name: "container", genv: `exec sudo -n unshare -pf --mount-proc $GENV "$@"`, rights: sshd.MaySudo,
			check: doctor.PIDNamespace, cause: "other-pid-namespace", detail: "they belong to PID namespace",
			next: "outside of the container",
		},
		{
			name: "full", rights: sshd.MaySudo, ail: func(t *testing.T, f *sshd.Fleet, h *sshd.Host) {
				inFleet(t, f, "full",
					"sudo mkdir -p "+filepath.Dir(h.AuditLog())+" && sudo mount -t tmpfs -o size=64k,mode=755 none "+filepath.Dir(h.AuditLog()))
			},
			check: doctor.Disk, cause: "disk-full", detail: "GiB free", next: "free space",
		},
		{
			name: "read-only", rights: sshd.MaySudo, ail: func(t *testing.T, f *sshd.Fleet, h *sshd.Host) {
				inFleet(t, f, "read-only",
					"sudo mkdir -p "+filepath.Dir(h.AuditLog())+" && sudo mount -t tmpfs -o ro,size=1g,mode=755 none "+filepath.Dir(h.AuditLog()))
			},
			check: doctor.Disk, cause: "disk-read-only", detail: "read-only file system", next: "mount it read-write",
		},
	}
}

// inFleet runs a command on a host, in the mount namespace of the fleet.
func inFleet(t *testing.T, f *sshd.Fleet, host, command string) {
	proctest.Output(t, exec.Command("ssh", "-F", f.SSHConfig(), host, command))
}

// fakeDate is a date(1) that is 3 hours behind where a machine's folder has a file "clock".
const fakeDate = `#!/bin/sh
[ -e "$GENV_TMPDIR/../clock" ] || exec /bin/date "$@"
/bin/date -d '3 hours ago' "$@"
`

// openSickFleet starts the hosts, and returns their names and a hosts.yaml.
func openSickFleet(t *testing.T, hosts []sickHost) (f *sshd.Fleet, inventory string) {
	options := sshd.Options{Genv: genvtest.Program(t)}
	for _, s := range hosts {
		if s.config == "" {
			rights := s.rights
			if rights == "" {
				rights = sshd.OnlyUsage
			}
			options.Hosts = append(options.Hosts, sshd.HostOptions{Name: s.name, Rights: rights, Fault: s.smi})
		}
	}
	f = sshd.Start(t, options)
	genvPath := filepath.Join(f.Dir, "bin", "genv")
	require.NoError(t, proctest.WriteProgram(filepath.Join(f.Dir, "bin", "date"), []byte(fakeDate)))
	for _, s := range hosts {
		if h := f.Host(s.name); h != nil { // as root's genv leaves the state files behind
			cmd := exec.Command(genvPath, "devices")
			cmd.Env = append(h.Variables(), "GENV_SIM_FAULT=", "PATH="+filepath.Join(f.Dir, "driver")+":/usr/bin:/bin")
			proctest.Output(t, cmd)
		}
	}
	var more, list strings.Builder
	list.WriteString("hosts:\n")
	silent, _ := openPort(t)
	closed, listener := openPort(t)
	require.NoError(t, listener.Close())
	fill := strings.NewReplacer("$WELL", f.Host("well").Address, "$SILENT", silent, "$CLOSED", closed)
	for _, s := range hosts {
		fmt.Fprintf(&list, "  - name: %s\n", s.name)
		if s.config != "" {
			fmt.Fprintf(&more, "Host %s\n\t%s\n", s.name, fill.Replace(s.config))
		}
		if s.genv != "" {
			script := filepath.Join(f.Dir, "bin", "genv-"+s.name)
			require.NoError(t, proctest.WriteProgram(script, []byte("#!/bin/sh\nGENV="+genvPath+"\n"+s.genv+"\n")))
			fmt.Fprintf(&list, "    genv: %s\n", script)
		}
		if s.ail != nil {
			s.ail(t, f, f.Host(s.name))
		}
	}
	config := proctest.ReadFile(t, f.SSHConfig())
	require.NoError(t, os.WriteFile(f.SSHConfig(), append([]byte(more.String()), config...), 0o600))
	inventory = filepath.Join(f.Dir, "hosts.yaml")
	require.NoError(t, os.WriteFile(inventory, []byte(list.String()), 0o600))
	addChangedKey(t, f)
	return f, inventory
}

// addChangedKey makes another key known for the name "changed".
func addChangedKey(t *testing.T, f *sshd.Fleet) {
	key := proctest.Try(testfleet.WriteKey(filepath.Join(t.TempDir(), "key"))).OK(t)
	known := proctest.Try(os.OpenFile(f.KnownHosts(), os.O_APPEND|os.O_WRONLY, 0)).OK(t)
	defer known.Close()
	proctest.Try(fmt.Fprintln(known, knownhosts.Line([]string{"changed"}, key))).OK(t)
}

// openPort is a port at which connections are made and nothing is said, until its listener is closed.
func openPort(t *testing.T) (port string, listener net.Listener) {
	listener = proctest.Try(net.Listen("tcp", "127.0.0.1:0")).OK(t)
	t.Cleanup(func() { _ = listener.Close() })
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port, listener
}

// TestDoctorNamesEachFault: a fleet of hosts with one fault each, over real sshd and sudo. Each fault is named in its
// check, with its next step; the checks before it are in order, and no host delays another one.
func TestDoctorNamesEachFault(t *testing.T) {
	hosts := slices.Concat(sickLogins(), sickMachines())
	f, inventory := openSickFleet(t, hosts)
	line := []string{"remote", "doctor", "-F", f.SSHConfig(), "-H", inventory, "--timeout", "4", "--command-timeout", "24"}
	before := stateOf(t, f)

	r := genvtest.Run(t, append(line, "--format", "json")...).Exits(t, 3)
	require.True(t, before == stateOf(t, f), "doctor changes nothing")
	d := genvtest.Decode[remotedoctor.FleetReport](t, r)
	require.Equal(t, remotedoctor.Schema, d.Schema)
	require.Len(t, d.Hosts, len(hosts))
	for i, s := range hosts {
		t.Run(s.name, func(t *testing.T) {
			h := d.Hosts[i]
			require.Equal(t, s.name, h.Host)
			require.Len(t, h.Checks, len(doctor.Names()))
			if s.check == "" {
				require.Equal(t, doctor.OK, h.Status, "%+v", h.Checks)
				require.Equal(t, 1, h.Genv.Protocol)
				require.NotEmpty(t, h.System.Driver)
				return
			}
			c := h.Check(s.check)
			require.Equal(t, cmp.Or(s.status, doctor.Failed), c.Status, "%+v", h.Checks)
			require.Equal(t, s.cause, c.Cause, "%+v", c)
			require.Contains(t, c.Detail, s.detail)
			require.NotContains(t, c.Detail, "--reset", "the advice is the next step")
			require.Contains(t, c.NextStep, s.next)
			for _, name := range doctor.Names() {
				if name == s.check {
					break
				}
				if before := h.Check(name); name != doctor.Services && (name != doctor.Sudo || s.rights == "") {
					require.Equal(t, doctor.OK, before.Status, "%+v", before)
				}
			}
			for _, c := range h.Checks {
				require.NotEmpty(t, c.Detail)
				require.Equal(t, c.Status == doctor.Failed || c.Status == doctor.Warning, c.NextStep != "", "%+v", c)
			}
		})
	}

	var table bytes.Buffer
	require.NoError(t, checkup.WriteFleet(&table, &d, checkup.Style{}))
	for _, s := range hosts {
		require.Contains(t, table.String(), "\n"+s.name+"  ", "a row")
		require.Contains(t, table.String(), s.next)
	}
	genvtest.Run(t, "remote", "doctor", "-F", f.SSHConfig(), "-H", "well").OK(t)
	guarded := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(guarded, []byte("overrides: [{hosts: [well], set: {guard: enforce}}]\n"), 0o600))
	for policy, differs := range map[string]bool{guarded: true, "none": false} {
		r := genvtest.Run(t, "remote", "doctor", "-F", f.SSHConfig(), "-H", "well", "--policy", policy)
		require.Equal(t, differs, strings.Contains(r.Out, "the policy says enforce, and "), r.Out)
	}
}

// stateOf lists all files of the hosts' state folders and roots' folders, without nvidia-smi's lock, which is in /run.
func stateOf(t *testing.T, f *sshd.Fleet) string {
	var b strings.Builder
	for _, h := range f.Hosts() {
		for _, root := range []string{h.State, h.Root()} {
			require.NoError(t, filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
				if err != nil || path == filepath.Join(h.Root(), "run") {
					return cmp.Or(err, filepath.SkipDir)
				}
				fmt.Fprintln(&b, path, info.Mode(), info.ModTime().UnixNano(), info.Size())
				return nil
			}))
		}
	}
	return b.String()
}
