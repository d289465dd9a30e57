package inventory_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/inventory"
)

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
		sel  inventory.Selection
		want string
	}{
		{"names", inventory.Selection{Hosts: []string{"a,b"}}, "a b"},
		{"repeated flag", inventory.Selection{Hosts: []string{"a", "b, c"}}, "a b c"},
		{"a range", inventory.Selection{Hosts: []string{"gpu[08-11].lab"}}, "gpu08.lab gpu09.lab gpu10.lab gpu11.lab"},
		{"commas in brackets", inventory.Selection{Hosts: []string{"n[1,3,5-6],x"}}, "n1 n3 n5 n6 x"},
		{"several brackets", inventory.Selection{Hosts: []string{"r[1-2]g[1-2]"}}, "r1g1 r1g2 r2g1 r2g2"},
		{"twice counts once", inventory.Selection{Hosts: []string{"a,b,A,a.", "b"}}, "a b"},
		{"plain file", inventory.Selection{HostFile: "list"}, "a b c1 c2"},
		{"file and names", inventory.Selection{Hosts: []string{"z,a"}, HostFile: "list"}, "z a b c1 c2"},
		{"yaml by content", inventory.Selection{HostFile: "fleet"}, "x y"},
		{"yaml file in -H", inventory.Selection{Hosts: []string{"more.yml"}}, "z"},
		{"the same file twice", inventory.Selection{Hosts: []string{"more.yml,./more.yml"}, HostFile: "more.yml"}, "z"},
		{"two yaml files", inventory.Selection{Hosts: []string{"more.yml"}, HostFile: "fleet"}, "z x y"},
		{"yaml and names: the names", inventory.Selection{Hosts: []string{"hosts.yaml,BIG,gpu-03"}}, "big gpu-03"},
		{"yaml and a group: the group", inventory.Selection{Hosts: []string{"hosts.yaml,@first"}}, "gpu-01 gpu-02"},
		{"yaml host file and a group", inventory.Selection{Hosts: []string{"@mixed"}, HostFile: "hosts.yaml"}, "gpu-01 gpu-02 big gpu-03"},
		{"a group of groups", inventory.Selection{Hosts: []string{"@all-gpus"}, HostFile: "hosts.yaml"}, "gpu-01 gpu-02 gpu-03 gpu-04"},
		{"plain list of a yaml's names", inventory.Selection{Hosts: []string{"hosts.yaml"}, HostFile: "at"}, "gpu-01 gpu-02 big"},
		{"all", inventory.Selection{Hosts: []string{"@all"}, HostFile: "fleet"}, "x y"},
		{"default file for groups", inventory.Selection{Hosts: []string{"@first"}, DefaultFiles: etc}, "gpu-01 gpu-02"},
		{"default file forbids nothing", inventory.Selection{Hosts: []string{"stranger,big"}, DefaultFiles: etc}, "stranger big"},
		{"without one", inventory.Selection{Hosts: []string{"a"}, DefaultFiles: []string{"/nowhere.yaml"}}, "a"},
		{"exclude", inventory.Selection{Hosts: []string{"g[1-5]"}, Exclude: []string{"g[2-3],G5"}}, "g1 g4"},
		{"exclude a group", inventory.Selection{Hosts: []string{"hosts.yaml"}, Exclude: []string{"@all-gpus"}}, "big Spare.lab slow odd"},
		{"exclude half", inventory.Selection{Hosts: []string{"g[1-2]"}, Exclude: []string{"g[2-9]"}}, "g1"},
		{"exclude what is in the file only", inventory.Selection{Hosts: []string{"hosts.yaml,big"}, Exclude: []string{"odd"}}, "big"},
		{"exclude an empty group", inventory.Selection{Hosts: []string{"hosts.yaml,big"}, Exclude: []string{"@empty"}}, "big"},
		{"IPv6", inventory.Selection{Hosts: []string{"[::1]:22,fe80::1%eth0,::2,[::3]"}}, "::1 fe80::1%eth0 ::2 ::3"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			hosts, err := inventory.Load(test.sel, f.open)
			require.NoError(t, err)
			require.Equal(t, test.want, names(hosts))
		})
	}
}

func TestSettings(t *testing.T) {
	f := files{"hosts.yaml": lab}
	load := func(user, host string) remote.Host {
		hosts, err := inventory.Load(inventory.Selection{Hosts: []string{host}, HostFile: "hosts.yaml", User: user}, f.open)
		require.NoError(t, err)
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
	hosts, err := inventory.Load(inventory.Selection{Hosts: []string{"a,bob@b:2222,[::1]:7722"}}, files{}.open)
	require.NoError(t, err)
	require.Equal(t, []remote.Host{{Name: "a"}, {Name: "b", User: "bob", Port: 2222}, {Name: "::1", Port: 7722}}, hosts)
}

func TestUsageErrors(t *testing.T) {
	f := files{
		"hosts.yaml": lab, "none.yaml": "hosts: []", "empty": "# nothing\n", "bad": "a\nb:c@d\n",
		"big": strings.Repeat("a", 5<<20), "dup.yaml": "hosts: [odd]",
	}
	tests := []struct {
		name string
		sel  inventory.Selection
		want string
	}{
		{"nothing", inventory.Selection{}, "no hosts are selected; use -H a,b or --hostfile FILE"},
		{"empty -H", inventory.Selection{Hosts: []string{""}}, "-H: the host name is empty; write one"},
		{"empty item", inventory.Selection{Hosts: []string{"a,,b"}}, "-H: the host name is empty; write one"},
		{"backwards", inventory.Selection{Hosts: []string{"gpu[3-1]"}}, `-H: "gpu[3-1]": the range 3-1 is reversed; write 1-3`},
		{"a bad host after two @", inventory.Selection{Hosts: []string{"a@b@c d"}}, `-H: "c d": ' ' is not allowed in a host name; use letters, digits, '-', '_' and '.'`},
		{"bad port", inventory.Selection{Hosts: []string{"a:0"}}, `-H: "a:0": "0" is not a port; write a number from 1 to 65535`},
		{"bare IPv6 with port", inventory.Selection{Hosts: []string{"::1:zz"}}, `-H: "::1:zz": an IPv6 address with a port must be in brackets; write it as [::1]:22`},
		{"no IPv6", inventory.Selection{Hosts: []string{"[::g]:22"}}, `-H: "[::g]:22": [::g] is not an IPv6 address; write it as [::1]:22`},
		{"open IPv6", inventory.Selection{Hosts: []string{"[::1"}}, `-H: "[::1": an IPv6 address with a port must be in brackets; write it as [::1]:22`},
		{"IPv6 and more", inventory.Selection{Hosts: []string{"[::1]x"}}, `-H: "[::1]x": an IPv6 address in brackets can only be followed by a port; write it as [::1]:22`},
		{"a bracket", inventory.Selection{Hosts: []string{"]"}}, `-H: "]": a closing bracket without an opening one; write it as gpu[1-4]`},
		{"an option", inventory.Selection{Hosts: []string{"-oProxyCommand"}}, `-H: "-oProxyCommand": a host name must begin with a letter or a digit`},
		{"a user as an option", inventory.Selection{Hosts: []string{"-l@a"}}, `-H: "-l@a": the user name "-l" begins with a dash; write only the name`},
		{"bad -l", inventory.Selection{Hosts: []string{"a"}, User: "a:b"}, `-l: "a:b" is not a user name; write one name`},
		{"too many", inventory.Selection{Hosts: []string{"a[1-999999999]"}}, `-H: "a[1-999999999]" matches more than 100000 hosts; write a smaller range`},
		{"too many together", inventory.Selection{Hosts: []string{"a[1-60000]", "b[1-60000]"}}, "-H: that makes more than 100000 hosts; write a smaller range"},
		{"two users", inventory.Selection{Hosts: []string{"x@a,y@A"}}, "-H: host A is named with the users x and y; name it once"},
		{"two ports", inventory.Selection{Hosts: []string{"a:1,a:2"}}, "-H: host a is named with the ports 1 and 2; for two machines give each a name and `address:` in hosts.yaml"},
		{"group without a file", inventory.Selection{Hosts: []string{"@lab"}}, "-H: host group @lab: no hosts.yaml was found that could define it; name one with --hostfile"},
		{"unknown group", inventory.Selection{Hosts: []string{"@firts"}, HostFile: "hosts.yaml"}, "-H: host group @firts: no such group in hosts.yaml; did you mean \"@first\"?"},
		{"nothing like it", inventory.Selection{Hosts: []string{"@x"}, HostFile: "hosts.yaml"}, "-H: host group @x: no such group in hosts.yaml; the groups are @all, @all-gpus, @empty, @first, @mixed"},
		{"unknown host", inventory.Selection{Hosts: []string{"gpu-05"}, HostFile: "hosts.yaml"}, "-H: host gpu-05 is not in hosts.yaml; did you mean \"gpu-01\"?"},
		{"stranger", inventory.Selection{Hosts: []string{"hosts.yaml,www.example.org"}}, "-H: host www.example.org is not in hosts.yaml; add it there, or correct the name"},
		{"empty group", inventory.Selection{Hosts: []string{"@empty"}, HostFile: "hosts.yaml"}, "-H: @empty has no hosts; add some to the host group"},
		{"empty yaml", inventory.Selection{HostFile: "none.yaml"}, "none.yaml: it has no hosts; add some under `hosts:`"},
		{"empty list", inventory.Selection{HostFile: "empty"}, "--hostfile empty: it has no hosts; write one per line"},
		{"bad line", inventory.Selection{HostFile: "bad"}, `bad:2: "b:c@d": "b:c" is not a user name; write one name`},
		{"no such file", inventory.Selection{HostFile: "nope"}, "--hostfile nope: file does not exist; check the path and its permissions"},
		{"no such yaml", inventory.Selection{Hosts: []string{"lab/nope"}}, "-H lab/nope: file does not exist; check the path and its permissions"},
		{"huge file", inventory.Selection{HostFile: "big"}, "--hostfile big: the file is larger than 4194304 bytes; is it a host file?"},
		{"a host in two files", inventory.Selection{Hosts: []string{"hosts.yaml,dup.yaml"}}, `dup.yaml:1:9: host odd is defined at hosts.yaml:19:5 already; remove one of them (in "hosts: [odd]")`},
		{"exclude a stranger", inventory.Selection{Hosts: []string{"gpu-03"}, Exclude: []string{"gpu-3"}}, "-x: gpu-3 is not one of the selected hosts; did you mean \"gpu-03\"?"},
		{"exclude everything", inventory.Selection{Hosts: []string{"a"}, Exclude: []string{"a"}}, "-x: no host is left; exclude fewer"},
		{"exclude nonsense", inventory.Selection{Hosts: []string{"a"}, Exclude: []string{"[1"}}, `-x: "[1": a bracket is not closed; write it as gpu[1-4]`},
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
	_, err := inventory.Load(inventory.Selection{Hosts: []string{"a"}, DefaultFiles: []string{"/etc/genv/hosts.yaml"}}, denied)
	require.EqualError(t, err, "/etc/genv/hosts.yaml: permission denied; check the path and its permissions")
	require.ErrorIs(t, err, fs.ErrPermission)
}

func TestReadErrorsNameTheFile(t *testing.T) {
	_, err := inventory.Load(inventory.Selection{HostFile: t.TempDir()}, openFile)
	require.ErrorIs(t, err, inventory.ErrUsage)
	require.ErrorContains(t, err, "is a directory; check that it is a file")

	broken := func(string) (io.ReadCloser, error) { return io.NopCloser(brokenReader{}), nil }
	_, err = inventory.Load(inventory.Selection{HostFile: "x"}, broken)
	require.EqualError(t, err, "--hostfile x: cable pulled; check that it is a file")
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("cable pulled") }

func TestExampleMatchesDemoFleet(t *testing.T) {
	path := filepath.Join("..", "..", "hosts.example.yaml")
	for selection, want := range map[string]string{"@all": "1234", "@lab": "1234", "@a100": "12", "@h100": "34", "gpu-[02-03]": "23"} {
		hosts, err := inventory.Load(inventory.Selection{Hosts: []string{selection}, HostFile: path}, openFile)
		require.NoError(t, err)
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
	text, err := os.ReadFile(filepath.Join("..", "..", "hosts.example.yaml"))
	require.NoError(t, err)
	f := files{"hosts.yaml": strings.NewReplacer("\n# user:", "\n  user:", "\n# genv:", "\n  genv:", "\n# sudo:", "\n  sudo:", "\n# ssh:", "\n  ssh:", "\n# -", "\n  -").Replace(string(text))}
	hosts, err := inventory.Load(inventory.Selection{HostFile: "hosts.yaml"}, f.open)
	require.NoError(t, err)
	require.Equal(t, "gpu-01 gpu-02 gpu-03 gpu-04 gpu-05.lab.example.org gpu-06", names(hosts))
	require.Equal(t, "admin", hosts[0].User)
	require.Equal(t, 2222, hosts[5].Port)
	require.True(t, hosts[5].NoSudo)
	require.True(t, hosts[5].OpenSSH)
}

func ExampleLoad() {
	hosts, err := inventory.Load(inventory.Selection{Hosts: []string{"gpu-[01-03],admin@old:2222"}, Exclude: []string{"gpu-02"}}, openFile)
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
