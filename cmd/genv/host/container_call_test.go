package host

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// TestDaemonJSON: genv's runtime becomes the one that was the default before.
func TestDaemonJSON(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	for _, name := range []string{"genv", "runc", "crun", "open"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), nil, 0o755))
	}
	require.NoError(t, os.Chmod(filepath.Join(bin, "open"), 0o777))
	genv := filepath.Join(bin, "genv")
	inPlace := fmt.Sprintf(`{"default-runtime": "genv", "runtimes": {"genv": {"path": %q, "runtimeArgs": ["container-runtime", "--real=%s/crun", "--"]}}}`, genv, bin)
	for before, want := range map[string]string{
		``: "--real=" + bin + "/runc",
		`{"dns": ["1.1.1.1"], "default-runtime": "io.containerd.runc.v2"}`: "--real=" + bin + "/runc",
		`{"default-runtime": "crun"}`:                                      "--real=" + bin + "/crun",
		`{"default-runtime": "x", "runtimes": {"x": {"path": "crun"}}}`:    "--real=" + bin + "/crun",
		strings.Replace(inPlace, genv, "/opt/genv", 1):                     "--real=" + bin + "/crun",
		inPlace: "/etc/docker/daemon.json: OK\n",
		`{"default-runtime": "x", "runtimes": {"x": {"path": "crun", "runtimeArgs": ["--debug"]}}}`: "has arguments",
		`{"default-runtime": "open"}`:    "other users can write",
		`{"default-runtime": "missing"}`: "not found",
		`{"runtimes": []}`:               "daemon.json: json",
	} {
		var out strings.Builder
		err := (&hostCommands{command.Program{Out: &out, Err: io.Discard}}).setupDocker([]byte(before), genv)
		if err != nil {
			out.WriteString(err.Error())
		}
		require.Contains(t, out.String(), want, before)
		if strings.HasPrefix(want, "--real") {
			var printed daemonConfig
			require.NoError(t, json.Unmarshal([]byte(out.String()), &printed))
			require.Equal(t, daemonConfig{"genv", map[string]daemonRuntime{"genv": {genv, []string{"container-runtime", want, "--"}}}}, printed)
		}
	}
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
