package remote_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

// TestCauses: what is a host's own makes no other cause, and everything else does.
func TestCauses(t *testing.T) {
	for name, row := range map[string]struct {
		first, second string // of gpu-01.lab and gpu-02.lab
		want          string // empty if they are two causes
	}{
		"the same":             {"sudo: a password is required", "sudo: a password is required", "sudo: a password is required"},
		"addresses":            {"no connection to 10.0.0.1:22: dial tcp 10.0.0.1:22: connect: no route to host", "no connection to 10.0.0.2:22: dial tcp 10.0.0.2:22: connect: no route to host", "no route to host"},
		"IPv6":                 {"dial [fe80::1%eth0]:22: refused", "dial [fe80::2]:22: refused", "dial …:22: refused"},
		"ports":                {"what answers at 127.0.0.1:4123 does not speak our SSH: x", "what answers at 127.0.0.1:999 does not speak our SSH: x", "what answers at 127.0.0.1… does not speak our SSH: x"},
		"names":                {"no connection to gpu-01.lab:22: lookup gpu-01.lab: no such host", "no connection to gpu-02.lab:22: lookup GPU-02.lab: no such host", "no such host"},
		"short names":          {"lookup gpu-01 failed", "lookup gpu-02 failed", "lookup … failed"},
		"other domains":        {"lookup gpu-01.example.org failed", "lookup gpu-02.example.org failed", "lookup … failed"},
		"PIDs and durations":   {"process 17 has hung for 1m3.5s", "process 4711 has hung for 900ms", "… has hung for …"},
		"keys":                 {"the key SHA256:abc+/1 is unknown", "the key SHA256:xyz is unknown", "the key … is unknown"},
		"a common port":        {"port 22: refused", "port 22: refused", "port 22: refused"},
		"another reason":       {"exit status 1", "exit status 2", ""},
		"another file":         {"/etc/a: refused", "/etc/b: refused", ""},
		"the other's name":     {"gpu-07.lab is the same machine", "gpu-08.lab is the same machine", ""},
		"a name within a name": {"xgpu-01 refused", "xgpu-02 refused", ""},
		"one text is longer":   {"refused", "refused: by 10.0.0.1", ""},
		"empty":                {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			causes := remote.Causes([]remote.Failure{
				{Host: "gpu-01.lab", Class: remote.Unreachable, Error: row.first, NextStep: "look"},
				{Host: "gpu-02.lab", Class: remote.Unreachable, Error: row.second, NextStep: "look"},
			})
			if row.want == "" && row.first != row.second {
				require.Len(t, causes, 2)
				return
			}
			require.Equal(t, []remote.Cause{{
				Class: remote.Unreachable, Error: row.want, Hosts: []string{"gpu-01.lab", "gpu-02.lab"}, NextSteps: []string{"look"},
			}}, causes)
		})
	}
}

// TestCausesOfAFleet: many hosts that fail in a few ways are a few causes, the biggest
// class first; a host that fails alone keeps its own text.
func TestCausesOfAFleet(t *testing.T) {
	var failures []remote.Failure
	for i := range 1000 {
		f := remote.Failure{Host: fmt.Sprintf("gpu-%04d.lab", i), Class: remote.Unreachable, NextStep: "a"}
		f.Error = fmt.Sprintf("no connection to 10.0.%d.%d:22: dial tcp 10.0.%[1]d.%[2]d:22: connect: connection refused", i/250, i%250)
		switch {
		case i == 7:
			f.Class, f.Error, f.NextStep = remote.HostKeyChanged, "the key SHA256:abc has changed", "b"
		case i%10 == 1:
			f.Class, f.Error, f.NextStep = remote.Sudo, "sudo: a password is required", "c"
		case i%10 == 2:
			f.Class, f.Error, f.NextStep = remote.Timeout, fmt.Sprintf("no answer in %d.5s", 10+i%7), "d"
		case i%10 == 3:
			f.Error = fmt.Sprintf("no connection to gpu-%04d.lab:22: lookup gpu-%04[1]d.lab: no such host", i)
		}
		failures = append(failures, f)
	}
	var lines []string
	hosts := 0
	for _, c := range remote.Causes(failures) {
		lines = append(lines, fmt.Sprintf("%s %d %s", c.Class, len(c.Hosts), c.Error))
		hosts += len(c.Hosts)
	}
	require.Equal(t, 1000, hosts)
	require.Equal(t, []string{
		"unreachable 699 connection refused", "unreachable 100 no such host", "sudo 100 sudo: a password is required",
		"timeout 100 no answer in …", "host-key-changed 1 the key SHA256:abc has changed",
	}, lines)
}

// A host that fails alone keeps its address, once.
func TestCauseOfOneHost(t *testing.T) {
	for text, want := range map[string]string{
		"no connection to 10.0.0.1:22: dial tcp 10.0.0.1:22: connect: no route to host": "no connection to 10.0.0.1:22: no route to host",
		"no connection to gpu:22: dial tcp 10.0.0.1:22: i/o timeout":                    "no connection to gpu:22: i/o timeout",
		"no connection to gpu:22: dial tcp: lookup gpu: no such host":                   "no connection to gpu:22: dial tcp: lookup gpu: no such host",
		"dial tcp 10.0.0.1:22: refused":                                                 "dial tcp 10.0.0.1:22: refused",
	} {
		causes := remote.Causes([]remote.Failure{{Host: "gpu", Error: text}})
		require.Equal(t, want, causes[0].Error)
	}
}

// FuzzCauses: whatever a host prints, it is in exactly one cause, and one host's text is
// shown as it is.
func FuzzCauses(f *testing.F) {
	f.Add("gpu-01.lab", "dial tcp 10.0.0.1:22: gpu-01 refused after 3s", "dial tcp 10.0.0.2:22: x")
	f.Add("", "\x00…", "no connection to …: ")
	f.Fuzz(func(t *testing.T, host, first, second string) {
		failures := []remote.Failure{{Host: host, Error: first}, {Host: "b", Error: second}, {Host: "c", Error: first}}
		var hosts []string
		for _, c := range remote.Causes(failures) {
			hosts = append(hosts, c.Hosts...)
			if len(c.Hosts) == 1 && !strings.HasPrefix(c.Error, "no connection to ") {
				require.Contains(t, []string{first, second}, c.Error)
			}
		}
		slices.Sort(hosts)
		want := []string{host, "b", "c"}
		slices.Sort(want)
		require.Equal(t, want, hosts)
		require.Len(t, remote.Causes(failures[:1]), 1)
	})
}
