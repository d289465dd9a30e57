package container

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func lookup(name string) (string, error) {
	if name == "missing" {
		return "", errors.New("not found")
	}
	if name[0] != '/' {
		name = "/usr/bin/" + name
	}
	return name, nil
}

func TestMergeAndUnmerge(t *testing.T) {
	own := `"genv":{"path":"/usr/bin/genv","runtimeArgs":["container-runtime","--real=/usr/bin/runc","--instead-of=runc","--"]}`
	nvidia := `"nvidia":{"path":"/usr/bin/nvidia-container-runtime","runtimeArgs":[]}`
	behind := `"genv":{"path":"/usr/bin/genv","runtimeArgs":["container-runtime","--real=/usr/bin/nvidia-container-runtime","--instead-of=nvidia","--"]}`
	for name, row := range map[string]struct {
		before, after, removed string
		keep                   bool // the default runtime
	}{
		"no file":              {``, `{"runtimes":{` + own + `},"default-runtime":"genv"}`, `{}`, false},
		"an empty object":      {`{}`, `{"runtimes":{` + own + `},"default-runtime":"genv"}`, `{}`, false},
		"other settings":       {`{"dns":["1.1.1.1"],"x":{"z":1,"a":18446744073709551615}}`, `{"dns":["1.1.1.1"],"x":{"z":1,"a":18446744073709551615},"runtimes":{` + own + `},"default-runtime":"genv"}`, `{"dns":["1.1.1.1"],"x":{"z":1,"a":18446744073709551615}}`, false},
		"without the default":  {`{"a":1}`, `{"a":1,"runtimes":{` + own + `}}`, `{"a":1}`, true},
		"NVIDIA's, by name":    {`{"runtimes":{` + nvidia + `}}`, `{"runtimes":{` + nvidia + `,` + own + `},"default-runtime":"genv"}`, `{"runtimes":{` + nvidia + `}}`, false},
		"NVIDIA's, by default": {`{"default-runtime":"nvidia","runtimes":{` + nvidia + `}}`, `{"default-runtime":"genv","runtimes":{` + nvidia + `,` + behind + `}}`, `{"default-runtime":"nvidia","runtimes":{` + nvidia + `}}`, false},
		"containerd's name":    {`{"default-runtime":"io.containerd.runc.v2"}`, `{"default-runtime":"genv","runtimes":{` + own + `}}`, `{}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := daemonSetup{genv: "/usr/bin/genv", lookup: lookup, isDefault: !row.keep}
			once, err := d.merge([]byte(row.before))
			require.NoError(t, err)
			require.True(t, same([]byte(row.after), once), string(once))
			twice, err := d.merge(once)
			require.NoError(t, err)
			require.Equal(t, string(once), string(twice), "it is the same the second time")
			removed, err := unmerge(once)
			require.NoError(t, err)
			require.True(t, same([]byte(row.removed), removed), string(removed))
			again, err := unmerge(removed)
			require.NoError(t, err)
			require.Equal(t, string(removed), string(again))
		})
	}
}

func TestAMovedGenvIsFoundAgain(t *testing.T) {
	old, err := daemonSetup{genv: "/opt/genv", lookup: lookup, real: "/usr/bin/crun", isDefault: true}.merge([]byte(`{"default-runtime":"crun","runtimes":{"crun":{"path":"crun"}}}`))
	require.NoError(t, err)
	next, err := daemonSetup{genv: "/usr/bin/genv", lookup: lookup, isDefault: true}.merge(old)
	require.NoError(t, err)
	require.Contains(t, string(next), `"path": "/usr/bin/genv"`)
	require.Contains(t, string(next), `"--real=/usr/bin/crun"`)
	require.Contains(t, string(next), `"--instead-of=crun"`)
	before, err := unmerge(next)
	require.NoError(t, err)
	require.True(t, same(before, []byte(`{"default-runtime":"crun","runtimes":{"crun":{"path":"crun"}}}`)), string(before))
}

func TestADaemonJSONThatIsLeft(t *testing.T) {
	for _, text := range []string{
		`[]`, `{`, `{"a":1`, `{"a":1}}`, `{"runtimes":[]}`, `{"a":1,"a":2}`,
		`{"default-runtime":"x","runtimes":{"x":{"runtimeType":"io.containerd.runsc.v1"}}}`,
		`{"default-runtime":"x","runtimes":{"x":{"path":"/x","runtimeArgs":["--debug"]}}}`,
		`{"default-runtime":"missing"}`,
	} {
		_, err := daemonSetup{genv: "/usr/bin/genv", lookup: lookup, isDefault: true}.merge([]byte(text))
		require.ErrorIs(t, err, errDaemonJSON, text)
	}
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte(`{"default-runtime":"nvidia","runtimes":{"nvidia":{"path":"/n"}},"x":[1,{"a":null}]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := daemonSetup{genv: "/usr/bin/genv", real: "/usr/bin/runc", lookup: lookup, isDefault: true}
		once, err := d.merge(data)
		if err != nil {
			require.ErrorIs(t, err, errDaemonJSON)
			return
		}
		twice, err := d.merge(once)
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice))
		_, err = unmerge(once)
		require.NoError(t, err)
	})
}
