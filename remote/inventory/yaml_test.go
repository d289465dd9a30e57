package inventory_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/inventory"
)

func loadYAML(text string) error {
	_, err := inventory.Load(inventory.Selection{HostFile: "h.yaml"}, files{"h.yaml": text}.open)
	return err
}

func TestYAMLErrorsNameTheLineAndColumn(t *testing.T) {
	tests := []struct{ name, yaml, want string }{
		{"unknown top key", "host:\n  - a\n", `h.yaml:1:1: unknown key "host"; did you mean "hosts"? (in "host:")`},
		{"unknown key", "hosts:\n  - name: a\n    prot: 22\n", `h.yaml:3:5: unknown key "prot"; did you mean "port"? (in "prot: 22")`},
		{"unknown default", "defaults: {colour: red}\nhosts: [a]\n", `h.yaml:1:12: unknown key "colour"; use one of genv, labels, port, ssh, sudo, user (in "defaults: {colour: red}")`},
		{"name in defaults", "defaults:\n  name: a\nhosts: [a]\n", `h.yaml:2:3: unknown key "name"; use one of genv, labels, port, ssh, sudo, user (in "name: a")`},
		{"port as text", "hosts:\n  - {name: a, port: \"22\"}\n", `h.yaml:2:21: port: expected a number, as in ` + "`1`" + `, but found text "22" (in "- {name: a, port: \"22\"}")`},
		{"port too high", "hosts:\n  - {name: a, port: 65536}\n", `h.yaml:2:21: port: 65536 is not a whole number from 1 to 65535 (in "- {name: a, port: 65536}")`},
		{"port broken", "hosts:\n  - {name: a, port: 2.5}\n", `h.yaml:2:21: port: 2.5 is not a whole number from 1 to 65535 (in "- {name: a, port: 2.5}")`},
		{"sudo as text", "hosts:\n  - name: a\n    sudo: yes\n", `h.yaml:3:11: sudo: expected true or false, as in ` + "`true`" + `, but found text "yes" (in "sudo: yes")`},
		{"another ssh", "hosts:\n  - name: a\n    ssh: /usr/bin/ssh\n", `h.yaml:3:10: ssh: unknown value "/usr/bin/ssh"; use one of builtin, openssh (in "ssh: /usr/bin/ssh")`},
		{"user as number", "hosts:\n  - name: a\n    user: 1000\n", `h.yaml:3:11: user: expected text, but found a number "1000"; put it in quotes (in "user: 1000")`},
		{"user as option", "hosts:\n  - name: a\n    user: -oX\n", `h.yaml:3:11: the user name "-oX" begins with a dash; write only the name (in "user: -oX")`},
		{"labels as list", "hosts:\n  - name: a\n    labels: [x]\n", `h.yaml:3:13: labels: expected a mapping, as in ` + "`name: value`" + `, but found a list (in "labels: [x]")`},
		{"a label without value", "hosts:\n  - name: a\n    labels:\n      x:\n", `h.yaml:4:7: x: expected text, as in ` + "`word`" + `, but found nothing (in "x:")`},
		{"hosts as mapping", "hosts:\n  a: {}\n", `h.yaml:2:3: hosts: expected a list, as in ` + "`- item`" + `, but found a mapping (in "a: {}")`},
		{"hosts empty", "hosts:\n", `h.yaml:1:1: hosts: expected a list, as in ` + "`- item`" + `, but found nothing (in "hosts:")`},
		{"a list on top", "- a\n- b\n", `h.yaml:1:1: expected a mapping, as in ` + "`key: value`" + `, but found a list (in "- a")`},
		{"no name", "hosts:\n  - port: 22\n", "h.yaml:2:5: the name of the host is missing; add `name:` (in \"- port: 22\")"},
		{"no host", "hosts:\n  - a\n  -\n", `h.yaml:3:5: expected text, as in ` + "`word`" + `, but found nothing (in "-")`},
		{"bad range", "hosts:\n  - gpu[3-1]\n", `h.yaml:2:5: "gpu[3-1]": the range 3-1 is reversed; write 1-3 (in "- gpu[3-1]")`},
		{"a,b@c", "hosts:\n  - a,b@c\n", `h.yaml:2:5: "a,b@c": "a,b" is not a user name; write one name (in "- a,b@c")`},
		{"user in name", "hosts:\n  - name: bob@a\n", "h.yaml:2:11: \"bob@a\" is more than a host; write `user:` and `port:` on lines of their own (in \"- name: bob@a\")"},
		{"group among hosts", "hosts:\n  - \"@x\"\n", "h.yaml:2:5: @x: a host group is not allowed here; use it in `groups:` (in \"- \\\"@x\\\"\")"},
		{"addresses", "hosts:\n  - name: a[1-3]\n    address: 10.0.0.[1-2]\n", `h.yaml:3:14: address: 2 addresses for 3 names; write a range with the same number (in "address: 10.0.0.[1-2]")`},
		{"twice", "hosts:\n  - a[1-3]\n  - name: A2\n", `h.yaml:3:11: host A2 is defined at h.yaml:2:5 already; remove one of them (in "- name: A2")`},
		{"too many", "hosts:\n  - a[1-60000]\n  - b[1-60000]\n", `h.yaml:3:5: that makes more than 100000 hosts; write a smaller range (in "- b[1-60000]")`},
		{"unknown host in group", "hosts: [gpu-01]\ngroups:\n  lab:\n    - gpu-1\n", `h.yaml:4:7: host gpu-1 is not in ` + "`hosts:`" + `; did you mean "gpu-01"? (in "- gpu-1")`},
		{"unknown group in group", "hosts: [a]\ngroups:\n  lab:\n    - \"@lob\"\n", `h.yaml:4:7: @lob: no such group in h.yaml; the groups are @all (in "- \"@lob\"")`},
		{"a circle", "hosts: [a]\ngroups:\n  x: [\"@y\"]\n  y: [\"@z\"]\n  z: [\"@x\"]\n", `h.yaml:5:7: group x contains itself: x > y > z > x; remove one of these (in "z: [\"@x\"]")`},
		{"itself", "hosts: [a]\ngroups:\n  x: [a, \"@x\"]\n", `h.yaml:3:10: group x contains itself: x > x; remove one of these (in "x: [a, \"@x\"]")`},
		{"group name", "hosts: [a]\ngroups:\n  \"x y\": [a]\n", `h.yaml:3:3: "x y" is not a valid group name; use letters, digits, '-', '_' and '.' (in "\"x y\": [a]")`},
		{"group not a list", "hosts: [a]\ngroups:\n  x: a\n", `h.yaml:3:6: x: expected a list, as in ` + "`- item`" + `, but found text "a" (in "x: a")`},
		{"key twice", "hosts: [a]\nhosts: [b]\n", `h.yaml:2:1: mapping key "hosts" already defined at [1:1]; put quotes around words with special characters, as in "@group" or ["gpu-[01-04]"] (in "hosts: [b]")`},
		{"@ without quotes", "groups:\n  x:\n    - @y\n", `h.yaml:3:7: '@' is a reserved character; put quotes around words with special characters, as in "@group" or ["gpu-[01-04]"] (in "- @y")`},
		{"brackets in brackets", "hosts: [gpu-[01-04]]\n", `h.yaml:1:13: ',' or ']' must be specified; put quotes around words with special characters, as in "@group" or ["gpu-[01-04]"] (in "hosts: [gpu-[01-04]]")`},
		{"alias", "hosts: &x [a]\ngroups: {g: *x}\n", `h.yaml:1:8: anchors, aliases and tags are not supported; write the value itself (in "hosts: &x [a]")`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := loadYAML(test.yaml)
			require.EqualError(t, err, test.want)
			require.ErrorIs(t, err, inventory.ErrUsage)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestGroupsMayBeWrittenBeforeTheirMembers(t *testing.T) {
	f := files{"h.yaml": "groups:\n  a: [\"@b\"]\n  b: [\"@c\", y]\n  c: [x]\nhosts: [x, y, z]\n"}
	hosts, err := inventory.Load(inventory.Selection{Hosts: []string{"@a"}, HostFile: "h.yaml"}, f.open)
	require.NoError(t, err)
	require.Equal(t, "x y", names(hosts))
}

func TestHostsShareNoLabels(t *testing.T) {
	f := files{"h.yaml": "hosts:\n  - name: a[1-2]\n    labels: {k: v}\n"}
	hosts, err := inventory.Load(inventory.Selection{HostFile: "h.yaml"}, f.open)
	require.NoError(t, err)
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
		for _, sel := range []inventory.Selection{
			{Hosts: []string{item}, DefaultFiles: []string{"d.yaml"}, Exclude: []string{out}},
			{HostFile: "list"},
			{All: true, DefaultFiles: []string{"d.yaml"}, Exclude: []string{out}},
			{HostFile: "h.yaml"},
		} {
			hosts, err := inventory.Load(sel, open)
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
