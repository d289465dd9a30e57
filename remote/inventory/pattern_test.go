package inventory_test

import (
	"io"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const racks = `
defaults: {labels: {site: lab}}
hosts:
  - {name: "gpu-[01-04]", labels: {gpu: a100, rack: 1}}
  - {name: "gpu-[05-07]", labels: {gpu: h100, rack: 2}}
  - {name: "gpu-08", labels: {gpu: h200, rack: 2, spare: ""}}
  - {name: "cpu-01", labels: {path: a/b.yaml}}
groups:
  odd: ["gpu-[01,03,05,07]"]
  empty: []
`

func TestPatterns(t *testing.T) {
	f := files{"/etc/genv/hosts.yaml": racks, "hosts.yaml": racks, "list": "gpu-*\n!gpu-02\nlabel:rack=2 # both\n", "out": "!@odd\n"}
	all := "gpu-01 gpu-02 gpu-03 gpu-04 gpu-05 gpu-06 gpu-07 gpu-08 cpu-01"
	tests := []struct{ name, hosts, want string }{
		{"a star", "gpu-*", "gpu-01 gpu-02 gpu-03 gpu-04 gpu-05 gpu-06 gpu-07 gpu-08"},
		{"any case", "CPU-*", "cpu-01"},
		{"a question mark", "?pu-0?,x", all + " x"},
		{"one character too many", "gpu-0?,gpu-010", "gpu-01 gpu-02 gpu-03 gpu-04 gpu-05 gpu-06 gpu-07 gpu-08 gpu-010"},
		{"with a range", "*-[07-09]", "gpu-07 gpu-08"},
		{"ranges are not character classes", "gpu-0[1-2]", "gpu-01 gpu-02"},
		{"without one of them", "gpu-*,!gpu-07", "gpu-01 gpu-02 gpu-03 gpu-04 gpu-05 gpu-06 gpu-08"},
		{"exclusion counts wherever it is written", "!gpu-07,gpu-*", "gpu-01 gpu-02 gpu-03 gpu-04 gpu-05 gpu-06 gpu-08"},
		{"without a range, a group and a label", "*,!gpu-[01-02],!@odd,!label:gpu=h*", "gpu-04 cpu-01"},
		{"without a glob", "*,!gpu-*", "cpu-01"},
		{"a glob among names of no inventory", "a[1-3],b1,!a*", "b1"},
		{"a label", "label:gpu=h100", "gpu-05 gpu-06 gpu-07"},
		{"a label's value as a glob", "label:gpu=h?00", "gpu-05 gpu-06 gpu-07 gpu-08"},
		{"several stars", "label:gpu=*0*0*", "gpu-01 gpu-02 gpu-03 gpu-04 gpu-05 gpu-06 gpu-07 gpu-08"},
		{"a star that must try twice", "label:path=*/*.yaml*", "cpu-01"},
		{"any value", "label:spare", "gpu-08"},
		{"an empty value", "label:spare=", "gpu-08"},
		{"a number", "label:rack=1", "gpu-01 gpu-02 gpu-03 gpu-04"},
		{"a slash and a dot in a label are no file", "label:path=a/b.yaml", "cpu-01"},
		{"the defaults' labels", "label:site=lab,!label:rack", "cpu-01"},
		{"a union, in the order of its items", "label:gpu=h200,cpu-*,gpu-01,gpu-*,!label:gpu=h100", "gpu-08 cpu-01 gpu-01 gpu-02 gpu-03 gpu-04"},
		{"an intersection", "label:rack=2,&@odd", "gpu-05 gpu-07"},
		{"of an intersection the rest", "gpu-*,&label:rack=2,&label:gpu=h100,!gpu-06", "gpu-05 gpu-07"},
		{"only an intersection: of all", "&label:gpu=h*", "gpu-05 gpu-06 gpu-07 gpu-08"},
		{"only an exclusion: of all", "!gpu-*", "cpu-01"},
		{"a user and a port for all", "bob@gpu-0[1-2]*:2222", "gpu-01 gpu-02"},
		{"a host of this name, and its port", "label:22,gpu-01", "label gpu-01"},
		{"an empty group excludes none", "gpu-01,!@empty", "gpu-01"},
		{"spaces", " gpu-0?, ! gpu-07 , &label:rack=2", "gpu-05 gpu-06 gpu-08"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			hosts := proctest.Try(inventory.Load(sel{Hosts: []string{test.hosts}, DefaultFiles: []string{"/etc/genv/hosts.yaml"}, All: true}, f.open)).OK(t)
			require.Equal(t, test.want, names(hosts))
		})
	}
	for name, test := range map[string]struct {
		sel  sel
		want string
	}{
		"a host file":                    {sel{HostFile: "list"}, "gpu-01 gpu-03 gpu-04 gpu-05 gpu-06 gpu-07 gpu-08"},
		"a host file that only excludes": {sel{HostFile: "out", Hosts: []string{"hosts.yaml"}}, "gpu-02 gpu-04 gpu-06 gpu-08 cpu-01"},
		"-x with a glob":                 {sel{Hosts: []string{"gpu-[01-16]"}, Exclude: []string{"gpu-0*,gpu-1[1-5]"}}, "gpu-10 gpu-16"},
		"-x with a label":                {sel{Hosts: []string{"hosts.yaml"}, Exclude: []string{"label:gpu"}}, "cpu-01"},
		"! with a file":                  {sel{Hosts: []string{"hosts.yaml,!gpu-*"}}, "cpu-01"},
		"! in a flag of its own":         {sel{Hosts: []string{"hosts.yaml,gpu-*", "!label:rack=1", "!gpu-08"}}, "gpu-05 gpu-06 gpu-07"},
	} {
		t.Run(name, func(t *testing.T) {
			test.sel.DefaultFiles = []string{"/etc/genv/hosts.yaml"}
			hosts := proctest.Try(inventory.Load(test.sel, f.open)).OK(t)
			require.Equal(t, test.want, names(hosts))
		})
	}
	hosts := proctest.Try(inventory.Load(sel{Hosts: []string{"eve@gpu-0[7-8]*:99"}, HostFile: "hosts.yaml", User: "bob"}, f.open)).OK(t)
	require.Equal(t, remote.Host{Name: "gpu-08", User: "eve", Port: 99, Labels: map[string]string{"site": "lab", "gpu": "h200", "rack": "2", "spare": ""}}, hosts[1])
}

func TestDefaultInventory(t *testing.T) {
	f := files{"/etc/genv/hosts.yaml": "hosts: [a, b]", "/home/u/hosts.yaml": "hosts: [c]", "/empty.yaml": "hosts: []"}
	const none = "no hosts are selected; use -H a,b or --hostfile FILE, or "
	etc, both := []string{"/etc/genv/hosts.yaml"}, []string{"/home/u/hosts.yaml", "/etc/genv/hosts.yaml"}
	for name, test := range map[string]struct {
		sel       sel
		want, err string
	}{
		"all":                              {sel: sel{All: true, DefaultFiles: etc}, want: "a b"},
		"all but one":                      {sel: sel{All: true, DefaultFiles: etc, Exclude: []string{"a"}}, want: "b"},
		"the first file":                   {sel: sel{All: true, DefaultFiles: both}, want: "c"},
		"the second, if there is no first": {sel: sel{All: true, DefaultFiles: []string{"/none", "/etc/genv/hosts.yaml"}}, want: "a b"},
		"hosts that are named":             {sel: sel{All: true, DefaultFiles: etc, Hosts: []string{"x"}}, want: "x"},
		"all by name":                      {sel: sel{DefaultFiles: etc, Hosts: []string{"@all"}}, want: "a b"},

		"none is named":             {sel: sel{DefaultFiles: etc}, err: none + "-H @all for all of hosts.yaml"},
		"only excluded ones are":    {sel: sel{DefaultFiles: etc, Hosts: []string{"!a"}}, err: none + "-H @all for all of hosts.yaml"},
		"only -x":                   {sel: sel{DefaultFiles: etc, Exclude: []string{"a"}}, err: none + "-H @all for all of hosts.yaml"},
		"there is no file":          {sel: sel{All: true, DefaultFiles: []string{"/x", "/y"}}, err: none + "list the hosts in /x or /y, which doesn't exist yet"},
		"the file has none":         {sel: sel{All: true, DefaultFiles: []string{"/empty.yaml"}}, err: "/empty.yaml: it has no hosts; add some under `hosts:`"},
		"a host file that has none": {sel: sel{All: true, DefaultFiles: etc, HostFile: "/dev/null"}, err: "--hostfile /dev/null: it has no hosts; write one per line"},
	} {
		t.Run(name, func(t *testing.T) {
			f["/dev/null"] = "# none\n"
			hosts, err := inventory.Load(test.sel, f.open)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, names(hosts))
		})
	}
	opened := func(path string) (io.ReadCloser, error) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}
	_, err := inventory.Load(sel{All: true, DefaultFiles: etc, OpenDefault: opened}, f.open)
	require.ErrorIs(t, err, fs.ErrPermission, "default files are opened in their own way")
}

func TestPatternErrors(t *testing.T) {
	f := files{"hosts.yaml": racks, "bare.yaml": "hosts: [a]"}
	for _, test := range []struct{ name, hosts, want string }{
		{"a glob that matches nothing", "hosts.yaml,gqu-*", `-H: gqu-* matches no host in hosts.yaml; correct it, or add the hosts there`},
		{"nothing like it", "hosts.yaml,xxxxxxxx*", "-H: xxxxxxxx* matches no host in hosts.yaml; correct it, or add the hosts there"},
		{"a glob without an inventory", "gpu-*", "-H: gpu-*: no hosts.yaml was found to look it up in; name one with --hostfile"},
		{"a label without an inventory", "label:gpu=h100", "-H: label:gpu=h100: no hosts.yaml was found to look it up in; name one with --hostfile"},
		{"a label that no host has", "hosts.yaml,label:gqu=h100", `-H: label:gqu=h100: no host in hosts.yaml has it; did you mean "gpu"?`},
		{"nothing like the label", "hosts.yaml,label:colour", "-H: label:colour: no host in hosts.yaml has it; the labels are gpu, path, rack, site, spare"},
		{"a value that no host has", "hosts.yaml,label:gpu=h10", `-H: label:gpu=h10: no host in hosts.yaml has it; did you mean "h100"?`},
		{"a value is no part", "hosts.yaml,label:gpu=100", `-H: label:gpu=100: no host in hosts.yaml has it; did you mean "a100"?`},
		{"a value's case", "hosts.yaml,label:gpu=H2*", "-H: label:gpu=H2*: no host in hosts.yaml has it; the values of gpu are a100, h100, h200"},
		{"a value is no regexp", "hosts.yaml,label:gpu=.*", "-H: label:gpu=.*: no host in hosts.yaml has it; the values of gpu are a100, h100, h200"},
		{"a value that is not UTF-8", "hosts.yaml,label:gpu=\xff*", "-H: label:gpu=\\xff*: no host in hosts.yaml has it; the values of gpu are a100, h100, h200"},
		{"no labels at all", "bare.yaml,label:gpu", "-H: label:gpu: no host in bare.yaml has it; add `labels:` to its hosts"},
		{"no label", "hosts.yaml,label:", "-H: label:: the label's name is missing; write it as label:gpu=h100, or label:gpu"},
		{"excluded, but misspelt", "hosts.yaml,gpu-*,!gpu-7", `-H !: gpu-7 is not one of the selected hosts; did you mean "gpu-07"?`},
		{"excluded glob without hosts", "hosts.yaml,!gqu-*", `-H !: gqu-* matches no host in hosts.yaml; correct it, or add the hosts there`},
		{"the same without an inventory", "a,!b*", "-H !: b* matches none of the selected hosts; correct it, or leave it out"},
		{"excluded group", "hosts.yaml,!@od", `-H !: host group @od: no such group in hosts.yaml; did you mean "@odd"?`},
		{"excluded label", "a,!label:gpu", "-H !: label:gpu: no hosts.yaml was found to look it up in; name one with --hostfile"},
		{"all are excluded", "hosts.yaml,!*", "-H !: no host is left; exclude fewer"},
		{"none in both", "hosts.yaml,label:gpu=a100,&label:rack=2", "-H &: none of the other hosts is in label:rack=2; correct it, or leave it out"},
		{"excluded twice", "a,!!b", "-H !: !b: write the hosts alone, without another sign before them"},
		{"nothing after the sign", "a,!", "-H !: the host name is empty; write one"},
		{"a file can't be excluded", "hosts.yaml,!./more.yaml", `-H !: "./more.yaml": '/' is not allowed in a host name; use letters, digits, '-', '_' and '.'`},
		{"a bracket", "hosts.yaml,gpu[*]", `-H: "gpu[*]": "*" is not a range of numbers; write it as [01-16] or [1,3,5-8]`},
		{"a character class", "hosts.yaml,gpu-0[!7]*", `-H: "gpu-0[!7]*": "!7" is not a range of numbers; write it as [01-16] or [1,3,5-8]`},
		{"two users", "hosts.yaml,x@gpu-01,y@gpu-*", "-H: host gpu-01 is named with the users x and y; name it once"},
	} {
		t.Run(test.name, func(t *testing.T) {
			hosts, err := inventory.Load(sel{Hosts: []string{test.hosts}}, f.open)
			require.EqualError(t, err, test.want)
			require.ErrorIs(t, err, inventory.ErrUsage)
			require.Empty(t, hosts)
		})
	}
	_, err := inventory.Load(sel{Hosts: []string{"a"}, Exclude: []string{"!a"}}, f.open)
	require.EqualError(t, err, "-x: !a: write the hosts alone, without another sign before them")
}
