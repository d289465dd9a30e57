package oci_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/container/oci"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const example = `{"ociVersion":"1.0.2","process":{"user":{"uid":0},"env":["PATH=/bin","A=1","A=2","B"],"rlimits":[{"hard":18446744073709551615}]},
"mounts":[{"destination":"/proc","type":"proc"}],"hooks":{"prestart":[{"path":"/a","args":["a","b"]}]},"annotations":{"x":"y"},
"linux":{"devices":[{"path":"/dev/nvidia0","type":"c","major":195,"minor":0}],"namespaces":[{"type":"mount"},{"type":"user"}],
"resources":{"devices":[{"allow":false,"access":"rwm"},{"allow":true,"type":"c","major":1,"minor":5}]}},"vm":{"unknown":[1.50]}}`

func TestParse(t *testing.T) {
	c := proctest.Try(oci.Parse([]byte(example))).OK(t)
	require.Equal(t, []string{"PATH=/bin", "A=1", "A=2", "B"}, c.Env)
	require.Equal(t, "2", c.Getenv("A"))
	_, set := c.LookupEnv("B")
	require.True(t, set)
	require.Equal(t, map[string]string{"x": "y"}, c.Annotations)
	require.Equal(t, []oci.DeviceNode{{Path: "/dev/nvidia0", Type: "c", Major: 195}}, c.Devices)
	require.Equal(t, []oci.Hook{{Path: "/a", Args: []string{"a", "b"}}}, c.Hooks["prestart"])
	require.True(t, c.InUserNamespace)
	require.False(t, c.AllDevices)
}

func TestEncodeKeepsTheRest(t *testing.T) {
	c := proctest.Try(oci.Parse([]byte(example))).OK(t)
	c.SetEnv("A", "3")
	c.UnsetEnv("B")
	c.AddHook("createRuntime", oci.Hook{Path: "/h", Args: []string{"h"}})
	c.AddHook("prestart", oci.Hook{Path: "/i"})
	data := proctest.Try(c.Encode()).OK(t)
	want := strings.NewReplacer(
		`"A=1","A=2","B"`, `"A=3"`,
		`{"path":"/a","args":["a","b"]}]`, `{"path":"/a","args":["a","b"]},{"path":"/i"}],"createRuntime":[{"path":"/h","args":["h"]}]`,
	).Replace(example)
	require.JSONEq(t, want, string(data))
	require.Contains(t, string(data), "18446744073709551615")
	require.Contains(t, string(data), "1.50")
}

func TestSmallConfigs(t *testing.T) {
	for _, text := range []string{`{}`, `{"process":null,"hooks":null,"linux":null}`, `{"process":{"env":null}}`} {
		c := proctest.Try(oci.Parse([]byte(text))).OK(t, text)
		c.SetEnv("A", "1")
		c.AddHook("poststop", oci.Hook{Path: "/h"})
		data := proctest.Try(c.Encode()).OK(t, text)
		again := proctest.Try(oci.Parse(data)).OK(t, string(data))
		require.Equal(t, "1", again.Getenv("A"))
		require.Equal(t, []oci.Hook{{Path: "/h"}}, again.Hooks["poststop"])
	}
}

func TestAllDevices(t *testing.T) {
	for rules, all := range map[string]bool{
		`{"allow":true,"access":"rwm"}`: true,
		`{"allow":false,"access":"rwm"},{"allow":true,"type":"a","major":-1,"minor":-1}`: true,
		`{"allow":true,"access":"rwm"},{"allow":false,"access":"rwm"}`:                   false,
		`{"allow":true,"type":"c","major":195,"access":"rwm"}`:                           false,
		`{"allow":false,"access":"rwm"},{"allow":true,"type":"c","major":195,"minor":0}`: false,
		``: false,
	} {
		c := proctest.Try(oci.Parse([]byte(`{"linux":{"resources":{"devices":[` + rules + `]}}}`))).OK(t)
		require.Equal(t, all, c.AllDevices, rules)
	}
}

func TestGarbled(t *testing.T) {
	for _, text := range []string{
		``, `[]`, `null x`, `{"process":[]}`, `{"process":{"env":"A=1"}}`, `{"linux":{"devices":{}}}`, `{"Process":{}}`, `{"process":{"ENV":["A=1"]}}`,
		`{"linux":{"Devices":[]}}`, `{"annotations":{"a":1}}`, example + example, strings.Repeat("[", 100000),
	} {
		require.ErrorIs(t, proctest.Try(oci.Parse([]byte(text))).Err, oci.ErrGarbled, text[:min(len(text), 80)])
	}
}

func TestFiles(t *testing.T) {
	bundle := t.TempDir()
	require.ErrorIs(t, proctest.Try(oci.Read(bundle)).Err, fs.ErrNotExist)
	path := filepath.Join(bundle, "config.json")
	require.NoError(t, os.WriteFile(path, []byte(example), 0o644))
	c := proctest.Try(oci.Read(bundle)).OK(t)
	c.SetEnv("A", "3")
	require.NoError(t, c.Write())
	c = proctest.Try(oci.Read(bundle)).OK(t)
	require.Equal(t, "3", c.Getenv("A"))
	entries := proctest.Try(os.ReadDir(bundle)).OK(t)
	require.Len(t, entries, 1)

	require.NoError(t, os.Truncate(path, 1<<30))
	require.ErrorIs(t, proctest.Try(oci.Read(bundle)).Err, folder.ErrUnsafe, "a huge one")
	require.NoError(t, os.Rename(path, filepath.Join(bundle, "other")))
	require.NoError(t, os.Symlink("other", path))
	require.ErrorIs(t, proctest.Try(oci.Read(bundle)).Err, folder.ErrUnsafe, "a link")
}

// FuzzParse: what is read can be changed, and is read again with the change and the rest.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(`{"process":{"env":["A=1"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := oci.Parse(data)
		if err != nil {
			require.ErrorIs(t, err, oci.ErrGarbled)
			return
		}
		c.SetEnv("GENV_TEST", "1")
		next := proctest.Try(c.Encode()).OK(t)
		require.True(t, json.Valid(next))
		again := proctest.Try(oci.Parse(next)).OK(t)
		require.Equal(t, "1", again.Getenv("GENV_TEST"))
		require.Equal(t, c.Devices, again.Devices)
		require.Equal(t, c.Annotations, again.Annotations)
	})
}
