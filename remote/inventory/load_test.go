package inventory_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// sel is what most tests begin with.
type sel = inventory.Selection

// files is an Open over files in memory; every other file does not exist.
type files map[string]string

func (f files) open(path string) (io.ReadCloser, error) {
	text, ok := f[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

const lab = `
defaults:
  port: 2200
  user: admin
  genv: /opt/genv
  labels: {site: lab, rack: 1}
hosts:
  - name: gpu-[01-04]
    address: 10.0.0.[1-4]
    labels: {gpu: a100}
  - name: big
    port: 22
    user: root
    genv: genv2
    sudo: false
    labels: {rack: 2}
  - Spare.lab
  - {name: slow, ssh: openssh}
  - bob@odd:2222
groups:
  all-gpus:
    - "@first"
    - gpu-[03-04]
  first:
    - gpu-[01-02]
  mixed: ["@first", big, "gpu-[02-03]"]
  empty: []
`

func names(hosts []remote.Host) string {
	list := make([]string, len(hosts))
	for i, h := range hosts {
		list[i] = h.Name
	}
	return strings.Join(list, " ")
}

func openFile(path string) (io.ReadCloser, error) { return os.Open(path) }

func TestSelection(t *testing.T) {
	f := files{
		"hosts.yaml": lab, "/etc/genv/hosts.yaml": lab, "list": "# the lab\na\n b # spare\n\nc[1-2]\r\n",
		"fleet": "# yaml\nhosts:\n  - x\n  - y\n", "more.yml": "hosts: [z]", "at": "@first\nbig\n", "dir/plain": "p\n",
	}
	etc := []string{"/home/u/hosts.yaml", "/etc/genv/hosts.yaml"}
	tests := []struct {
		name string
		sel  sel
		want string
	}{
		{"names", sel{Hosts: []string{"a,b"}}, "a b"},
		{"repeated flag", sel{Hosts: []string{"a", "b, c"}}, "a b c"},
		{"a range", sel{Hosts: []string{"gpu[08-11].lab"}}, "gpu08.lab gpu09.lab gpu10.lab gpu11.lab"},
		{"commas in brackets", sel{Hosts: []string{"n[1,3,5-6],x"}}, "n1 n3 n5 n6 x"},
		{"several brackets", sel{Hosts: []string{"r[1-2]g[1-2]"}}, "r1g1 r1g2 r2g1 r2g2"},
		{"twice counts once", sel{Hosts: []string{"a,b,A,a.", "b"}}, "a b"},
		{"plain file", sel{HostFile: "list"}, "a b c1 c2"},
		{"file and names", sel{Hosts: []string{"z,a"}, HostFile: "list"}, "z a b c1 c2"},
		{"yaml by content", sel{HostFile: "fleet"}, "x y"},
		{"yaml file in -H", sel{Hosts: []string{"more.yml"}}, "z"},
		{"the same file twice", sel{Hosts: []string{"more.yml,./more.yml"}, HostFile: "more.yml"}, "z"},
		{"two yaml files", sel{Hosts: []string{"more.yml"}, HostFile: "fleet"}, "z x y"},
		{"yaml and names: the names", sel{Hosts: []string{"hosts.yaml,BIG,gpu-03"}}, "big gpu-03"},
		{"yaml and a group: the group", sel{Hosts: []string{"hosts.yaml,@first"}}, "gpu-01 gpu-02"},
		{"yaml host file and a group", sel{Hosts: []string{"@mixed"}, HostFile: "hosts.yaml"}, "gpu-01 gpu-02 big gpu-03"},
		{"a group of groups", sel{Hosts: []string{"@all-gpus"}, HostFile: "hosts.yaml"}, "gpu-01 gpu-02 gpu-03 gpu-04"},
		{"plain list of a yaml's names", sel{Hosts: []string{"hosts.yaml"}, HostFile: "at"}, "gpu-01 gpu-02 big"},
		{"all", sel{Hosts: []string{"@all"}, HostFile: "fleet"}, "x y"},
		{"default file for groups", sel{Hosts: []string{"@first"}, DefaultFiles: etc}, "gpu-01 gpu-02"},
		{"default file forbids nothing", sel{Hosts: []string{"stranger,big"}, DefaultFiles: etc}, "stranger big"},
		{"without one", sel{Hosts: []string{"a"}, DefaultFiles: []string{"/nowhere.yaml"}}, "a"},
		{"exclude", sel{Hosts: []string{"g[1-5]"}, Exclude: []string{"g[2-3],G5"}}, "g1 g4"},
		{"exclude a group", sel{Hosts: []string{"hosts.yaml"}, Exclude: []string{"@all-gpus"}}, "big Spare.lab slow odd"},
		{"exclude half", sel{Hosts: []string{"g[1-2]"}, Exclude: []string{"g[2-9]"}}, "g1"},
		{"exclude what is in the file only", sel{Hosts: []string{"hosts.yaml,big"}, Exclude: []string{"odd"}}, "big"},
		{"exclude an empty group", sel{Hosts: []string{"hosts.yaml,big"}, Exclude: []string{"@empty"}}, "big"},
		{"IPv6", sel{Hosts: []string{"[::1]:22,fe80::1%eth0,::2,[::3]"}}, "::1 fe80::1%eth0 ::2 ::3"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, names(proctest.Try(inventory.Load(test.sel, f.open)).OK(t)))
		})
	}
}

func TestSettings(t *testing.T) {
	f := files{"hosts.yaml": lab}
	load := func(user, host string) remote.Host {
		hosts := proctest.Try(inventory.Load(sel{Hosts: []string{host}, HostFile: "hosts.yaml", User: user}, f.open)).OK(t)
		require.Len(t, hosts, 1)
		return hosts[0]
	}
	gpu := remote.Host{
		Name: "gpu-02", Address: "10.0.0.2", Port: 2200, User: "admin", GenvPath: "/opt/genv",
		Labels: map[string]string{"site": "lab", "rack": "1", "gpu": "a100"},
	}
	require.Equal(t, gpu, load("", "GPU-02"))
	require.Equal(t, remote.Host{
		Name: "big", Port: 22, User: "root", GenvPath: "genv2", NoSudo: true,
		Labels: map[string]string{"site": "lab", "rack": "2"},
	}, load("", "big"))
	require.True(t, load("", "slow").OpenSSH)
	require.Equal(t, "bob", load("", "odd").User)
	require.Equal(t, 2222, load("", "odd").Port)
	require.Equal(t, "eve", load("eve", "big").User, "-l over the file")
	require.Equal(t, "ann", load("eve", "ann@big:99").User, "user@host over -l")
	require.Equal(t, 99, load("eve", "ann@big:99").Port)
	require.Equal(t, "ann@corp.example", load("eve", "ann@corp.example@big:99").User, "the last @ is before the host, as in ssh")
	for _, user := range []string{"ann@corp.example", `CORP\jdoe`, "First Last", "müller", "ws$"} {
		require.Equal(t, user, load(user, "big").User)
		require.Equal(t, user, load("", user+"@big").User)
	}
	require.Equal(t, "zoe", load("", "big,zoe@big,big:22").User, "named thrice, said once")
}

func TestPlainNamesHaveNoSettings(t *testing.T) {
	hosts := proctest.Try(inventory.Load(sel{Hosts: []string{"a,bob@b:2222,[::1]:7722"}}, files{}.open)).OK(t)
	require.Equal(t, []remote.Host{{Name: "a"}, {Name: "b", User: "bob", Port: 2222}, {Name: "::1", Port: 7722}}, hosts)
}

func TestUsageErrors(t *testing.T) {
	f := files{
		"hosts.yaml": lab, "none.yaml": "hosts: []", "empty": "# nothing\n", "bad": "a\nb:c@d\n",
		"big": strings.Repeat("a", 5<<20), "dup.yaml": "hosts: [odd]",
	}
	tests := []struct {
		name string
		sel  sel
		want string
	}{
		{"nothing", sel{}, "no hosts are selected; use -H a,b or --hostfile FILE"},
		{"empty -H", sel{Hosts: []string{""}}, "-H: the host name is empty; write one"},
		{"empty item", sel{Hosts: []string{"a,,b"}}, "-H: the host name is empty; write one"},
		{"backwards", sel{Hosts: []string{"gpu[3-1]"}}, `-H: "gpu[3-1]": the range 3-1 is reversed; write 1-3`},
		{"a bad host after two @", sel{Hosts: []string{"a@b@c d"}}, `-H: "c d": ' ' is not allowed in a host name; use letters, digits, '-', '_' and '.'`},
		{"bad port", sel{Hosts: []string{"a:0"}}, `-H: "a:0": "0" is not a port; write a number from 1 to 65535`},
		{"bare IPv6 with port", sel{Hosts: []string{"::1:zz"}}, `-H: "::1:zz": an IPv6 address with a port must be in brackets; write it as [::1]:22`},
		{"no IPv6", sel{Hosts: []string{"[::g]:22"}}, `-H: "[::g]:22": [::g] is not an IPv6 address; write it as [::1]:22`},
		{"open IPv6", sel{Hosts: []string{"[::1"}}, `-H: "[::1": an IPv6 address with a port must be in brackets; write it as [::1]:22`},
		{"IPv6 and more", sel{Hosts: []string{"[::1]x"}}, `-H: "[::1]x": an IPv6 address in brackets can only be followed by a port; write it as [::1]:22`},
		{"a bracket", sel{Hosts: []string{"]"}}, `-H: "]": a closing bracket without an opening one; write it as gpu[1-4]`},
		{"an option", sel{Hosts: []string{"-oProxyCommand"}}, `-H: "-oProxyCommand": a host name must begin with a letter or a digit`},
		{"a user as an option", sel{Hosts: []string{"-l@a"}}, `-H: "-l@a": the user name "-l" begins with a dash; write only the name`},
		{"bad -l", sel{Hosts: []string{"a"}, User: "a:b"}, `-l: "a:b" is not a user name; write one name`},
		{"too many", sel{Hosts: []string{"a[1-999999999]"}}, `-H: "a[1-999999999]" matches more than 100000 hosts; write a smaller range`},
		{"too many together", sel{Hosts: []string{"a[1-60000]", "b[1-60000]"}}, "-H: that makes more than 100000 hosts; write a smaller range"},
		{"two users", sel{Hosts: []string{"x@a,y@A"}}, "-H: host A is named with the users x and y; name it once"},
		{"two ports", sel{Hosts: []string{"a:1,a:2"}}, "-H: host a is named with the ports 1 and 2; for two machines give each a name and `address:` in hosts.yaml"},
		{"group without a file", sel{Hosts: []string{"@lab"}}, "-H: host group @lab: no hosts.yaml was found that could define it; name one with --hostfile"},
		{"unknown group", sel{Hosts: []string{"@firts"}, HostFile: "hosts.yaml"}, "-H: host group @firts: no such group in hosts.yaml; did you mean \"@first\"?"},
		{"nothing like it", sel{Hosts: []string{"@x"}, HostFile: "hosts.yaml"}, "-H: host group @x: no such group in hosts.yaml; the groups are @all, @all-gpus, @empty, @first, @mixed"},
		{"unknown host", sel{Hosts: []string{"gpu-05"}, HostFile: "hosts.yaml"}, "-H: host gpu-05 is not in hosts.yaml; did you mean \"gpu-01\"?"},
		{"stranger", sel{Hosts: []string{"hosts.yaml,www.example.org"}}, "-H: host www.example.org is not in hosts.yaml; add it there, or correct the name"},
		{"empty group", sel{Hosts: []string{"@empty"}, HostFile: "hosts.yaml"}, "-H: @empty has no hosts; add some to the host group"},
		{"empty yaml", sel{HostFile: "none.yaml"}, "none.yaml: it has no hosts; add some under `hosts:`"},
		{"empty list", sel{HostFile: "empty"}, "--hostfile empty: it has no hosts; write one per line"},
		{"bad line", sel{HostFile: "bad"}, `bad:2: "b:c@d": "b:c" is not a user name; write one name`},
		{"no such file", sel{HostFile: "nope"}, "--hostfile nope: file does not exist; check the path and its permissions"},
		{"no such yaml", sel{Hosts: []string{"lab/nope"}}, "-H lab/nope: file does not exist; check the path and its permissions"},
		{"huge file", sel{HostFile: "big"}, "--hostfile big: the file is larger than 4194304 bytes; is it a host file?"},
		{"a host in two files", sel{Hosts: []string{"hosts.yaml,dup.yaml"}}, `dup.yaml:1:9: host odd is defined at hosts.yaml:19:5 already; remove one of them (in "hosts: [odd]")`},
		{"exclude a stranger", sel{Hosts: []string{"gpu-03"}, Exclude: []string{"gpu-3"}}, "-x: gpu-3 is not one of the selected hosts; did you mean \"gpu-03\"?"},
		{"exclude everything", sel{Hosts: []string{"a"}, Exclude: []string{"a"}}, "-x: no host is left; exclude fewer"},
		{"exclude nonsense", sel{Hosts: []string{"a"}, Exclude: []string{"[1"}}, `-x: "[1": a bracket is not closed; write it as gpu[1-4]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			hosts, err := inventory.Load(test.sel, f.open)
			require.EqualError(t, err, test.want)
			require.ErrorIs(t, err, inventory.ErrUsage)
			require.Empty(t, hosts)
		})
	}
}

func TestUnreadableDefaultFileIsAnError(t *testing.T) {
	denied := func(path string) (io.ReadCloser, error) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}
	_, err := inventory.Load(sel{Hosts: []string{"a"}, DefaultFiles: []string{"/etc/genv/hosts.yaml"}}, denied)
	require.EqualError(t, err, "/etc/genv/hosts.yaml: permission denied; check the path and its permissions")
	require.ErrorIs(t, err, fs.ErrPermission)
}

func TestReadErrorsNameTheFile(t *testing.T) {
	_, err := inventory.Load(sel{HostFile: t.TempDir()}, openFile)
	require.ErrorIs(t, err, inventory.ErrUsage)
	require.ErrorContains(t, err, "is a directory; check that it is a file")

	broken := func(string) (io.ReadCloser, error) { return io.NopCloser(brokenReader{}), nil }
	require.EqualError(t, proctest.Try(inventory.Load(sel{HostFile: "x"}, broken)).Err, "--hostfile x: cable pulled; check that it is a file")
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("cable pulled") }

func TestExampleMatchesDemoFleet(t *testing.T) {
	path := filepath.Join("..", "..", "hosts.example.yaml")
	for selection, want := range map[string]string{"@all": "1234", "@lab": "1234", "@a100": "12", "@h100": "34", "gpu-[02-03]": "23"} {
		hosts := proctest.Try(inventory.Load(sel{Hosts: []string{selection}, HostFile: path}, openFile)).OK(t)
		require.Len(t, hosts, len(want), selection)
		for i, h := range hosts {
			n := want[i : i+1]
			gpu := "a100"
			if n > "2" {
				gpu = "h100"
			}
			require.Equal(t, remote.Host{
				Name: "gpu-0" + n, Address: "127.77.0." + n, Port: 7722,
				Labels: map[string]string{"site": "lab", "gpu": gpu},
			}, h)
		}
	}
}

// The comments of the example are settings too: all of them must be valid.
func TestExampleWithEverythingUncommented(t *testing.T) {
	text := proctest.ReadFile(t, filepath.Join("..", "..", "hosts.example.yaml"))
	uncommented := regexp.MustCompile(`(?m)^# (user:|genv:|sudo:|ssh:|-)`).ReplaceAllString(string(text), "  $1")
	f := files{"hosts.yaml": uncommented}
	hosts := proctest.Try(inventory.Load(sel{HostFile: "hosts.yaml"}, f.open)).OK(t)
	require.Equal(t, "gpu-01 gpu-02 gpu-03 gpu-04 gpu-05.lab.example.org gpu-06", names(hosts))
	require.Equal(t, "admin", hosts[0].User)
	require.Equal(t, 2222, hosts[5].Port)
	require.True(t, hosts[5].NoSudo)
	require.True(t, hosts[5].OpenSSH)
}

func ExampleLoad() {
	hosts, err := inventory.Load(sel{Hosts: []string{"gpu-[01-03],admin@old:2222"}, Exclude: []string{"gpu-02"}}, openFile)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, h := range hosts {
		fmt.Printf("%s %q %d\n", h.Name, h.User, h.Port)
	}
	// Output:
	// gpu-01 "" 0
	// gpu-03 "" 0
	// old "admin" 2222
}

func TestYAMLErrorsNameTheLineAndColumn(t *testing.T) {
	const quotes = `; put quotes around words with special characters, as in "@group" or ["gpu-[01-04]"]`
	tests := []struct{ name, yaml, want string }{
		{"unknown top key", "host:\n  - a\n", `1:1: unknown key "host"; did you mean "hosts"? (in "host:")`},
		{"unknown key", "hosts:\n  - name: a\n    prot: 22\n", `3:5: unknown key "prot"; did you mean "port"? (in "prot: 22")`},
		{"unknown default", "defaults: {colour: red}\nhosts: [a]\n", `1:12: unknown key "colour"; use one of genv, labels, port, ssh, sudo, user (in "defaults: {colour: red}")`},
		{"name in defaults", "defaults:\n  name: a\nhosts: [a]\n", `2:3: unknown key "name"; use one of genv, labels, port, ssh, sudo, user (in "name: a")`},
		{"port as text", "hosts:\n  - {name: a, port: \"22\"}\n", `2:21: port: expected a number, as in ` + "`1`" + `, but found text "22" (in "- {name: a, port: \"22\"}")`},
		{"port too high", "hosts:\n  - {name: a, port: 65536}\n", `2:21: port: 65536 is not a whole number from 1 to 65535 (in "- {name: a, port: 65536}")`},
		{"port broken", "hosts:\n  - {name: a, port: 2.5}\n", `2:21: port: 2.5 is not a whole number from 1 to 65535 (in "- {name: a, port: 2.5}")`},
		{"sudo as text", "hosts:\n  - name: a\n    sudo: yes\n", `3:11: sudo: expected true or false, as in ` + "`true`" + `, but found text "yes" (in "sudo: yes")`},
		{"another ssh", "hosts:\n  - name: a\n    ssh: /usr/bin/ssh\n", `3:10: ssh: unknown value "/usr/bin/ssh"; use one of builtin, openssh (in "ssh: /usr/bin/ssh")`},
		{"user as number", "hosts:\n  - name: a\n    user: 1000\n", `3:11: user: expected text, but found a number "1000"; put it in quotes (in "user: 1000")`},
		{"user as option", "hosts:\n  - name: a\n    user: -oX\n", `3:11: the user name "-oX" begins with a dash; write only the name (in "user: -oX")`},
		{"labels as list", "hosts:\n  - name: a\n    labels: [x]\n", `3:13: labels: expected a mapping, as in ` + "`name: value`" + `, but found a list (in "labels: [x]")`},
		{"a label without value", "hosts:\n  - name: a\n    labels:\n      x:\n", `4:7: x: expected text, as in ` + "`word`" + `, but found nothing (in "x:")`},
		{"hosts as mapping", "hosts:\n  a: {}\n", `2:3: hosts: expected a list, as in ` + "`- item`" + `, but found a mapping (in "a: {}")`},
		{"hosts empty", "hosts:\n", `1:1: hosts: expected a list, as in ` + "`- item`" + `, but found nothing (in "hosts:")`},
		{"a list on top", "- a\n- b\n", `1:1: expected a mapping, as in ` + "`key: value`" + `, but found a list (in "- a")`},
		{"no name", "hosts:\n  - port: 22\n", "2:5: the name of the host is missing; add `name:` (in \"- port: 22\")"},
		{"no host", "hosts:\n  - a\n  -\n", `3:5: expected text, as in ` + "`word`" + `, but found nothing (in "-")`},
		{"bad range", "hosts:\n  - gpu[3-1]\n", `2:5: "gpu[3-1]": the range 3-1 is reversed; write 1-3 (in "- gpu[3-1]")`},
		{"a,b@c", "hosts:\n  - a,b@c\n", `2:5: "a,b@c": "a,b" is not a user name; write one name (in "- a,b@c")`},
		{"user in name", "hosts:\n  - name: bob@a\n", "2:11: \"bob@a\" is more than a host; write `user:` and `port:` on lines of their own (in \"- name: bob@a\")"},
		{"group among hosts", "hosts:\n  - \"@x\"\n", "2:5: @x: a host group is not allowed here; use it in `groups:` (in \"- \\\"@x\\\"\")"},
		{"addresses", "hosts:\n  - name: a[1-3]\n    address: 10.0.0.[1-2]\n", `3:14: address: 2 addresses for 3 names; write a range with the same number (in "address: 10.0.0.[1-2]")`},
		{"twice", "hosts:\n  - a[1-3]\n  - name: A2\n", `3:11: host A2 is defined at h.yaml:2:5 already; remove one of them (in "- name: A2")`},
		{"too many", "hosts:\n  - a[1-60000]\n  - b[1-60000]\n", `3:5: that makes more than 100000 hosts; write a smaller range (in "- b[1-60000]")`},
		{"unknown host in group", "hosts: [gpu-01]\ngroups:\n  lab:\n    - gpu-1\n", `4:7: host gpu-1 is not in ` + "`hosts:`" + `; did you mean "gpu-01"? (in "- gpu-1")`},
		{"unknown group in group", "hosts: [a]\ngroups:\n  lab:\n    - \"@lob\"\n", `4:7: @lob: no such group in h.yaml; the groups are @all (in "- \"@lob\"")`},
		{"a circle", "hosts: [a]\ngroups:\n  x: [\"@y\"]\n  y: [\"@z\"]\n  z: [\"@x\"]\n", `5:7: group x contains itself: x > y > z > x; remove one of these (in "z: [\"@x\"]")`},
		{"itself", "hosts: [a]\ngroups:\n  x: [a, \"@x\"]\n", `3:10: group x contains itself: x > x; remove one of these (in "x: [a, \"@x\"]")`},
		{"group name", "hosts: [a]\ngroups:\n  \"x y\": [a]\n", `3:3: "x y" is not a valid group name; use letters, digits, '-', '_' and '.' (in "\"x y\": [a]")`},
		{"group not a list", "hosts: [a]\ngroups:\n  x: a\n", `3:6: x: expected a list, as in ` + "`- item`" + `, but found text "a" (in "x: a")`},
		{"key twice", "hosts: [a]\nhosts: [b]\n", `2:1: mapping key "hosts" already defined at [1:1]` + quotes + ` (in "hosts: [b]")`},
		{"@ without quotes", "groups:\n  x:\n    - @y\n", `3:7: '@' is a reserved character` + quotes + ` (in "- @y")`},
		{"brackets in brackets", "hosts: [gpu-[01-04]]\n", `1:13: ',' or ']' must be specified` + quotes + ` (in "hosts: [gpu-[01-04]]")`},
		{"alias", "hosts: &x [a]\ngroups: {g: *x}\n", `1:8: anchors, aliases and tags are not supported; write the value itself (in "hosts: &x [a]")`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := inventory.Load(sel{HostFile: "h.yaml"}, files{"h.yaml": test.yaml}.open)
			require.EqualError(t, err, "h.yaml:"+test.want)
			require.ErrorIs(t, err, inventory.ErrUsage)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestGroupsMayBeWrittenBeforeTheirMembers(t *testing.T) {
	f := files{"h.yaml": "groups:\n  a: [\"@b\"]\n  b: [\"@c\", y]\n  c: [x]\nhosts: [x, y, z]\n"}
	hosts := proctest.Try(inventory.Load(sel{Hosts: []string{"@a"}, HostFile: "h.yaml"}, f.open)).OK(t)
	require.Equal(t, "x y", names(hosts))
}

func TestHostsShareNoLabels(t *testing.T) {
	f := files{"h.yaml": "hosts:\n  - name: a[1-2]\n    labels: {k: v}\n"}
	hosts := proctest.Try(inventory.Load(sel{HostFile: "h.yaml"}, f.open)).OK(t)
	hosts[0].Labels["k"] = "changed"
	require.Equal(t, "v", hosts[1].Labels["k"])
}

// FuzzLoad feeds files and items of -H with any content: every
// one gives hosts with names, each once, or an error of one line.
func FuzzLoad(f *testing.F) {
	f.Add("hosts.yaml,@first", lab, "gpu-01")
	f.Add("gpu[01-16].lab,a@b:22,[::1]:22", "a\nb # c\n", "")
	f.Add("@x", "hosts: [a]\ngroups: {x: [\"@x\"]}", "@all")
	f.Add("a@b@c", "defaults: {labels: {a: 1}}", "a[3-1]")
	f.Add("0/\n0", "0", "")
	f.Add("gpu-*,!gpu-0?,&@first,x@*-[01-02]:22", lab, "label:gpu")
	f.Add("label:gpu=a*,label:22,!label:rack=[,&label:", lab, "*")
	f.Add("", "hosts:\n  - name: a[1-3]\n    address: '[::1]'\n", "")
	f.Fuzz(func(t *testing.T, item, file, out string) {
		open := func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(file)), nil }
		for _, one := range []sel{
			{Hosts: []string{item}, DefaultFiles: []string{"d.yaml"}, Exclude: []string{out}},
			{HostFile: "list"},
			{All: true, DefaultFiles: []string{"d.yaml"}, Exclude: []string{out}},
			{HostFile: "h.yaml"},
		} {
			hosts, err := inventory.Load(one, open)
			if err != nil {
				require.ErrorIs(t, err, inventory.ErrUsage)
				require.NotContains(t, err.Error(), "\n")
				continue
			}
			require.NotEmpty(t, hosts)
			seen := map[string]bool{}
			for _, h := range hosts {
				key := strings.ToLower(strings.TrimSuffix(h.Name, "."))
				require.False(t, seen[key], h.Name)
				require.NotEmpty(t, h.Name)
				require.NotContains(t, "-@[", h.Name[:1], fmt.Sprintf("%q", h.Name))
				seen[key] = true
			}
		}
	})
}
