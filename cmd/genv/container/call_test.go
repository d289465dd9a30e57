package container

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]call{
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
		c := parse(strings.Fields(line))
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
		require.Equal(t, want, (&call{bundle: bundle}).engineName(), bundle)
	}
}
