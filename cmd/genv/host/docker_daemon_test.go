package host

import (
	"errors"
	"strings"
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

func TestParse(t *testing.T) {
	for line, want := range map[string]runcCall{
		"--root /r --log /l --log-format json create --bundle /b --pid-file /p ID": {command: "create", bundle: "/b", id: "ID", log: "/l"},
		"--root=/r --log=/l --systemd-cgroup create --console-socket=/c -b /b ID":  {command: "create", bundle: "/b", id: "ID", log: "/l"},
		"run -d --bundle=/b ID":                {command: "run", bundle: "/b", id: "ID"},
		"create ID":                            {command: "create", bundle: ".", id: "ID"},
		"create -- ID":                         {command: "create", bundle: ".", id: "ID"},
		"create --no-pivot --preserve-fds 3 x": {command: "create", bundle: ".", id: "x"},
		"--log /l start ID":                    {command: "start", bundle: ".", log: "/l"},
		"--root create delete --force ID":      {command: "delete", bundle: "."},
		"--version":                            {bundle: "."},
		"":                                     {bundle: "."},
		"create":                               {command: "create", bundle: "."},
		"create --bundle":                      {command: "create", bundle: "."},
	} {
		c := parseCall(strings.Fields(line))
		c.args = nil
		require.Equal(t, want, *c, line)
	}
}

func TestOwnFlags(t *testing.T) {
	for line, want := range map[string][2]string{
		"--real=/r --instead-of=runc -- --log /l create": {"/r", "--log /l create"},
		"--real /r -- create":                            {"/r", "create"},
		"--real /r create":                               {"/r", "create"},
		"create --real x":                                {"", "create --real x"},
		"-- --real x":                                    {"", "--real x"},
		"":                                               {"", ""},
	} {
		own, rest := ownFlags(strings.Fields(line))
		require.Equal(t, want, [2]string{own["real"], strings.Join(rest, " ")}, line)
	}
}

func TestEngineName(t *testing.T) {
	for bundle, want := range map[string]string{
		"/run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/abc": "docker",
		"/run/containerd/io.containerd.runtime.v2.task/k8s.io/abc":             "containerd",
		"/var/lib/containers/storage/overlay-containers/abc/userdata":          "podman",
		"/tmp/b": "",
	} {
		require.Equal(t, want, (&runcCall{bundle: bundle}).engineName(), bundle)
	}
}

// FuzzParseCall: whatever an engine passes on, the real runtime gets the same words, and the
// id of a container is one of them.
func FuzzParseCall(f *testing.F) {
	for _, seed := range []string{
		"--root\n/r\n--log\n/l\ncreate\n--bundle\n/b\n--pid-file\n/p\nID", "run\n-d\n--bundle=/b\nID", "create\n--\nID", "create\n--bundle", "--real=/r\n--\ncreate\nID", "-\n--\n--=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\n")
		c := parseCall(args)
		require.Equal(t, strings.Split(line, "\n"), c.args)
		require.NotEmpty(t, c.bundle)
		if c.id != "" {
			require.True(t, c.starts())
			require.Contains(t, args, c.id)
		}
		_, rest := ownFlags(args)
		require.True(t, strings.HasSuffix("\n"+line, "\n"+strings.Join(rest, "\n")) || len(rest) == 0)
	})
}
