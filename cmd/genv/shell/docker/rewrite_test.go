package docker_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell/docker"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var two = docker.ContainerEnvironment{EID: "1667", Name: "my env", Devices: []docker.Device{{Index: 1}, {Index: 3}}}

const (
	ids = "-e|GENV_ENVIRONMENT_ID=1667|-e|GENV_ENVIRONMENT_NAME=my env"
	gpu = `--gpus|"device=1,3"`
)

// words takes a line apart at "|", so that a word may have spaces.
func words(line string) []string {
	if line == "" {
		return nil
	}
	return strings.Split(line, "|")
}

func rewrite(t *testing.T, args []string, env docker.ContainerEnvironment) ([]string, error) {
	t.Helper()
	call, ok, err := docker.Parse(args)
	require.NoError(t, err)
	require.True(t, ok)
	return call.Args(env)
}

func TestContainersGetTheAttachedDevices(t *testing.T) {
	for line, want := range map[string]string{
		"run|cuda":                                  "run|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=1,3|cuda",
		"run|--gpus|all|cuda|nvidia-smi":            "run|" + gpu + "|" + ids + "|cuda|nvidia-smi",
		"run|--gpus=all|cuda":                       "run|" + gpu + "|" + ids + "|cuda",
		"run|--gpus|2|cuda":                         "run|" + gpu + "|" + ids + "|cuda",
		"run|--gpus|1|cuda":                         "run|--gpus|device=1|" + ids + "|cuda",
		"run|--gpus|0|cuda":                         "run|--gpus|0|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=void|cuda",
		"run|--gpus|device=3|cuda":                  "run|--gpus|device=3|" + ids + "|cuda",
		`run|--gpus|"device=3,1"|cuda`:              `run|--gpus|"device=3,1"|` + ids + "|cuda",
		`run|--gpus|device=all|cuda`:                "run|" + gpu + "|" + ids + "|cuda",
		`run|--gpus|all,"capabilities=a,b"|cuda`:    `run|--gpus|"device=1,3","capabilities=a,b"|` + ids + "|cuda",
		"run|--gpus|count=all,driver=nvidia|cuda":   `run|--gpus|"device=1,3",driver=nvidia|` + ids + "|cuda",
		"run|--gpus|driver=nvidia|cuda":             `run|--gpus|device=1,driver=nvidia|` + ids + "|cuda",
		"container|create|--gpus|all|cuda":          "container|create|" + gpu + "|" + ids + "|cuda",
		"-H|tcp://h|--tls|-c|x|run|--gpus|all|cuda": "-H|tcp://h|--tls|-c|x|run|" + gpu + "|" + ids + "|cuda",

		// what is in the container's command is not docker's
		"run|--gpus|all|cuda|sh|--gpus|all|-e|x": "run|" + gpu + "|" + ids + "|cuda|sh|--gpus|all|-e|x",
		"run|cuda|docker|run|--gpus|all|cuda":    "run|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=1,3|cuda|docker|run|--gpus|all|cuda",
		"run|--gpus|all|--|cuda|--gpus":          "run|" + gpu + "|" + ids + "|--|cuda|--gpus",

		// flags that take a value, and those that don't
		"run|--name|--gpus|cuda":                            "run|--name|--gpus|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=1,3|cuda",
		"run|-it|--rm=true|-eA=b|-v|/a:/b|--gpus|all|c|all": "run|-it|--rm=true|-eA=b|-v|/a:/b|" + gpu + "|" + ids + "|c|all",
		"run|-itv|/a:/b|-dp=80:80|--gpus|all|cuda":          "run|-itv|/a:/b|-dp=80:80|" + gpu + "|" + ids + "|cuda",
		"run|-e|GENV_ENVIRONMENT_ID=9|cuda":                 "run|-e|GENV_ENVIRONMENT_ID=9|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=1,3|cuda",
		"run|--entrypoint||--gpus|all|cuda":                 "run|--entrypoint||" + gpu + "|" + ids + "|cuda",

		// the other ways to devices
		"run|--runtime|nvidia|cuda":                                     "run|--runtime|nvidia|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=1,3|cuda",
		"run|--runtime=nvidia|--gpus|1|cuda":                            "run|--runtime=nvidia|--gpus|device=1|" + ids + "|cuda",
		"run|--runtime|runc|cuda":                                       "run|--runtime|runc|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=1,3|cuda",
		"run|-e|NVIDIA_VISIBLE_DEVICES=all|cuda":                        "run|-e|NVIDIA_VISIBLE_DEVICES=all|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=1,3|cuda",
		"run|-ite|NVIDIA_VISIBLE_DEVICES|cuda":                          "run|-ite|NVIDIA_VISIBLE_DEVICES|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=1,3|cuda",
		"run|--env=NVIDIA_VISIBLE_DEVICES=3|cuda":                       "run|--env=NVIDIA_VISIBLE_DEVICES=3|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=3|cuda",
		"run|-e|NVIDIA_VISIBLE_DEVICES=0|-e|NVIDIA_VISIBLE_DEVICES=3|c": "run|-e|NVIDIA_VISIBLE_DEVICES=0|-e|NVIDIA_VISIBLE_DEVICES=3|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=3|c",
		"run|-e|NVIDIA_VISIBLE_DEVICES=void|cuda":                       "run|-e|NVIDIA_VISIBLE_DEVICES=void|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=void|cuda",
		"run|--device|nvidia.com/gpu=all|cuda":                          "run|--device|nvidia.com/gpu=1|--device|nvidia.com/gpu=3|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=void|cuda",
		"run|--device=nvidia.com/gpu=3|--device|/dev/a|c":               "run|--device|nvidia.com/gpu=3|--device|/dev/a|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=void|c",
		"run|--gpus|all|-e|NVIDIA_DRIVER_CAPABILITIES=a|c":              "run|" + gpu + "|-e|NVIDIA_DRIVER_CAPABILITIES=a|" + ids + "|c",
	} {
		got := proctest.Try(rewrite(t, words(line), two)).OK(t, line)
		require.Equal(t, words(want), got, line)
	}
}

func TestContainersOnAGuardedHost(t *testing.T) {
	guarded := two
	guarded.Devices = []docker.Device{{Index: 1, UUID: "GPU-b"}, {Index: 3, UUID: "GPU-d"}}
	for line, want := range map[string]string{
		"run|--gpus|all|cuda":                    `run|--gpus|"device=GPU-b,GPU-d"|` + ids + "|cuda",
		"run|--gpus|1|cuda":                      "run|--gpus|device=GPU-b|" + ids + "|cuda",
		"run|--gpus|device=3|cuda":               "run|--gpus|device=GPU-d|" + ids + "|cuda",
		`run|--gpus|"device=GPU-d,GPU-b"|cuda`:   `run|--gpus|"device=GPU-d,GPU-b"|` + ids + "|cuda",
		"run|--runtime|nvidia|cuda":              "run|--runtime|nvidia|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=GPU-b,GPU-d|cuda",
		"run|-e|NVIDIA_VISIBLE_DEVICES=3|cuda":   "run|-e|NVIDIA_VISIBLE_DEVICES=3|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=GPU-d|cuda",
		"run|--device|nvidia.com/gpu=all|cuda":   "run|--device|nvidia.com/gpu=1|--device|nvidia.com/gpu=3|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=void|cuda",
		"run|--device|nvidia.com/gpu=GPU-d|cuda": "run|--device|nvidia.com/gpu=3|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=void|cuda",
	} {
		got := proctest.Try(rewrite(t, words(line), guarded)).OK(t, line)
		require.Equal(t, words(want), got, line)
	}
	for line, want := range map[string]error{
		"run|--gpus|device=GPU-c|cuda":           docker.ErrRequest,
		`run|--gpus|"device=GPU-b,GPU-c"|cuda`:   docker.ErrRequest,
		"run|--gpus|device=0|cuda":               docker.ErrNotAttached,
		"run|-e|NVIDIA_VISIBLE_DEVICES=0|cuda":   docker.ErrNotAttached,
		"run|--device|nvidia.com/gpu=GPU-c|cuda": docker.ErrRequest,
	} {
		require.ErrorIs(t, proctest.Try(rewrite(t, words(line), guarded)).Err, want, line)
	}
}

// Each MIG instance counts as a device.
func TestContainersWithMIGInstances(t *testing.T) {
	env := two
	env.Devices = []docker.Device{{Index: 1}, {Index: 2, UUID: "MIG-a"}, {Index: 2, UUID: "MIG-b"}, {Index: 5, UUID: "GPU-f"}}
	instances := two
	instances.Devices = env.Devices[1:3]
	for _, row := range []struct {
		line string
		env  docker.ContainerEnvironment
		want string
	}{
		{"run|--gpus|all|cuda", instances, `run|--gpus|"device=MIG-a,MIG-b"|` + ids + "|cuda"},
		{"run|--gpus|2|cuda", instances, `run|--gpus|"device=MIG-a,MIG-b"|` + ids + "|cuda"},
		{"run|--gpus|1|cuda", instances, "run|--gpus|device=MIG-a|" + ids + "|cuda"},
		{"run|--gpus|device=2|cuda", instances, `run|--gpus|"device=MIG-a,MIG-b"|` + ids + "|cuda"},
		{"run|--gpus|device=MIG-b|cuda", instances, "run|--gpus|device=MIG-b|" + ids + "|cuda"},
		{`run|--gpus|"device=MIG-a,MIG-b"|cuda`, instances, `run|--gpus|"device=MIG-a,MIG-b"|` + ids + "|cuda"},
		{"run|--runtime|nvidia|cuda", instances, "run|--runtime|nvidia|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=MIG-a,MIG-b|cuda"},
		{"run|-e|NVIDIA_VISIBLE_DEVICES=MIG-b|c", instances, "run|-e|NVIDIA_VISIBLE_DEVICES=MIG-b|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=MIG-b|c"},
		{"run|--device|nvidia.com/gpu=all|c", env, "run|--device|nvidia.com/gpu=1|--device|nvidia.com/gpu=MIG-a|--device|nvidia.com/gpu=MIG-b|--device|nvidia.com/gpu=5|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=void|c"},
		{"run|--device|nvidia.com/gpu=MIG-b|c", env, "run|--device|nvidia.com/gpu=MIG-b|" + ids + "|-e|NVIDIA_VISIBLE_DEVICES=void|c"},
		{"run|--gpus|all|cuda", env, `run|--gpus|"device=1,MIG-a,MIG-b,GPU-f"|` + ids + "|cuda"},
		{`run|--gpus|"device=2,1"|cuda`, env, `run|--gpus|"device=MIG-a,MIG-b,1"|` + ids + "|cuda"},
	} {
		got := proctest.Try(rewrite(t, words(row.line), row.env)).OK(t, row.line)
		require.Equal(t, words(row.want), got, row.line)
	}
	for line, want := range map[string]error{
		"run|--gpus|3|cuda":                      docker.ErrTooMany,
		"run|--gpus|device=1|cuda":               docker.ErrNotAttached,
		"run|--gpus|device=MIG-c|cuda":           docker.ErrRequest,
		`run|--gpus|"device=MIG-a,MIG-c"|cuda`:   docker.ErrRequest,
		"run|--device|nvidia.com/gpu=2:0|cuda":   docker.ErrRequest,
		"run|-e|NVIDIA_VISIBLE_DEVICES=MIG-c|c":  docker.ErrRequest,
		"run|-e|NVIDIA_VISIBLE_DEVICES=MIG-a,|c": docker.ErrRequest,
	} {
		require.ErrorIs(t, proctest.Try(rewrite(t, words(line), instances)).Err, want, line)
	}
}

func TestContainersThatGetNoMoreThanIsAttached(t *testing.T) {
	none := docker.ContainerEnvironment{EID: "1667"}
	for _, row := range []struct {
		line string
		env  docker.ContainerEnvironment
		want error
	}{
		{"run|--gpus|3|c", two, docker.ErrTooMany},
		{"run|--gpus|count=4|c", two, docker.ErrTooMany},
		{"run|--gpus|device=0|c", two, docker.ErrNotAttached},
		{`run|--gpus|"device=1,2"|c`, two, docker.ErrNotAttached},
		{"run|--device|nvidia.com/gpu=0|c", two, docker.ErrNotAttached},
		{"run|-e|NVIDIA_VISIBLE_DEVICES=0|c", two, docker.ErrNotAttached},
		{"run|--gpus|device=GPU-123|c", two, docker.ErrRequest},
		{"run|--gpus|device=|c", two, docker.ErrRequest},
		{"run|--gpus|-2|c", two, docker.ErrRequest},
		{"run|--gpus|many|c", two, docker.ErrRequest},
		{"run|--gpus|device=0,1|c", two, docker.ErrRequest}, // docker wants quotes
		{`run|--gpus|"all|c`, two, docker.ErrRequest},
		{"run|--gpus|share=all|c", two, docker.ErrRequest},
		{"run|--gpus|1|c", none, docker.ErrNoDevices},
		{"run|--gpus|device=0|c", none, docker.ErrNoDevices},
		{"run|--gpus|driver=nvidia|c", none, docker.ErrNoDevices},
		{"run|--device|nvidia.com/gpu=all|c", none, docker.ErrNoDevices},
		{"run|-e|NVIDIA_VISIBLE_DEVICES=all|c", none, docker.ErrNoDevices},
	} {
		args, err := rewrite(t, words(row.line), row.env)
		require.ErrorIs(t, err, row.want, row.line)
		require.Empty(t, args)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestAnEnvironmentWithoutDevices(t *testing.T) {
	none := docker.ContainerEnvironment{EID: "1667"}
	for line, want := range map[string]string{
		"run|ubuntu":                "run|-e|GENV_ENVIRONMENT_ID=1667|-e|NVIDIA_VISIBLE_DEVICES=void|ubuntu",
		"run|--gpus|all|cuda":       "run|--gpus|0|-e|GENV_ENVIRONMENT_ID=1667|-e|NVIDIA_VISIBLE_DEVICES=void|cuda",
		"run|--gpus=count=-1|cuda":  "run|--gpus|0|-e|GENV_ENVIRONMENT_ID=1667|-e|NVIDIA_VISIBLE_DEVICES=void|cuda",
		"run|--runtime|nvidia|cuda": "run|--runtime|nvidia|-e|GENV_ENVIRONMENT_ID=1667|-e|NVIDIA_VISIBLE_DEVICES=void|cuda",
	} {
		got := proctest.Try(rewrite(t, words(line), none)).OK(t)
		require.Equal(t, words(want), got)
	}
}

func TestOtherCommandsAreLeftAlone(t *testing.T) {
	for _, line := range []string{
		"", "ps", "ps|-a", "compose|run|--gpus|all", "exec|-it|c|run", "build|--gpus|all|.", "container|ls", "container", "image|run", "--version", "-c|run|ps", "--", "--|run",
		"run|--gpus", "run|-it|-e", "--context", // docker says what is missing
	} {
		_, ok, err := docker.Parse(words(line))
		require.NoError(t, err, line)
		require.False(t, ok, line)
	}
}

func TestUnknownFlags(t *testing.T) {
	for _, line := range []string{"run|--new-flag|x|cuda", "run|-Z|cuda", "run|-itZ|cuda", "--new|run|cuda", "run|--dns --dns-opt|cuda"} {
		_, ok, err := docker.Parse(words(line))
		require.ErrorIs(t, err, docker.ErrUnknownFlag, line)
		require.False(t, ok, line)
	}
}

func FuzzRewrite(f *testing.F) {
	f.Add("run|-it|--gpus|all|cuda|sh")
	f.Add(`--tls|container|create|--gpus|"device=1,3",driver=x|-e|NVIDIA_VISIBLE_DEVICES=all|c`)
	f.Fuzz(func(t *testing.T, line string) {
		args := words(line)
		call, ok, err := docker.Parse(args)
		if !ok || err != nil {
			return
		}
		got, err := call.Args(two)
		if err != nil {
			return
		}
		require.Contains(t, got, "GENV_ENVIRONMENT_ID=1667")
		again, ok, err := docker.Parse(got)
		require.NoError(t, err)
		require.True(t, ok)
		same := proctest.Try(again.Args(two)).OK(t, "what was rewritten asks for attached devices alone")
		require.Subset(t, same, got)
	})
}

// harness has no docker: who is handed what is all that is seen.
func shim(handed *[]string, environment func() (docker.ContainerEnvironment, error), args ...string) (docker.Shim, *strings.Builder) {
	stderr := &strings.Builder{}
	return docker.Shim{
		Real: "/usr/bin/docker", Args: args, Environment: environment, Stderr: stderr,
		Exec: func(_ string, argv, _ []string) error {
			*handed = argv
			return nil
		},
	}, stderr
}

func TestShim(t *testing.T) {
	attached := func() (docker.ContainerEnvironment, error) { return two, nil }
	broken := func() (docker.ContainerEnvironment, error) {
		return docker.ContainerEnvironment{}, errors.New("envs.json is corrupt")
	}
	var handed []string

	s, _ := shim(&handed, attached, words("run|--gpus|all|c")...)
	require.NoError(t, s.Run())
	require.Equal(t, words("/usr/bin/docker|run|"+gpu+"|"+ids+"|c"), handed)

	idle := func() (docker.ContainerEnvironment, error) { return docker.ContainerEnvironment{EID: "1667"}, nil }
	s, said := shim(&handed, idle, words("run|--gpus|all|c")...)
	require.NoError(t, s.Run())
	require.Equal(t, words("/usr/bin/docker|run|--gpus|0|-e|GENV_ENVIRONMENT_ID=1667|-e|NVIDIA_VISIBLE_DEVICES=void|c"), handed)
	require.Equal(t, "genv: no GPU is attached to environment 1667, so docker runs with --gpus 0: run genv attach first\n", said.String())

	s, _ = shim(&handed, broken, words("ps")...)
	require.NoError(t, s.Run(), "the state files are not needed")

	s, _ = shim(&handed, broken, words("run|--gpus|all|c")...)
	handed = nil
	require.ErrorContains(t, s.Run(), "GENV_BYPASS")
	require.Nil(t, handed)

	s.Bypass = true
	require.NoError(t, s.Run())
	require.Equal(t, words("/usr/bin/docker|run|--gpus|all|c"), handed)

	s, stderr := shim(&handed, attached, words("run|--new|x|c")...)
	require.NoError(t, s.Run())
	require.Equal(t, words("/usr/bin/docker|run|--new|x|c"), handed)
	require.Contains(t, stderr.String(), "unknown flag --new")

	s.Exec = func(string, []string, []string) error { return exec.ErrNotFound }
	require.ErrorIs(t, s.Run(), exec.ErrNotFound)
}

// TestOwn: what `genv docker` makes of a command line.
func TestOwn(t *testing.T) {
	for line, want := range map[string]string{
		"run|--gpus|1|c|sh":                  "run|--gpus|1|--runtime|genv|-e|GENV_GPUS=1|-e|GENV_CONTAINER_TOKEN|c|sh",
		"run|--gpus=all|c":                   "run|--gpus=all|--runtime|genv|-e|GENV_GPUS=all|-e|GENV_CONTAINER_TOKEN|c",
		"run|--gpus|device=1|c":              "run|--gpus|device=1|--runtime|genv|-e|GENV_CONTAINER_TOKEN|c",
		"run|--gpus|0|c":                     "run|--gpus|0|--runtime|genv|-e|GENV_CONTAINER_TOKEN|c",
		"run|-it|--gpus|2|--gpu-memory|4g|c": "run|-it|--gpus|2|--runtime|genv|-e|GENV_GPUS=2|-e|GENV_GPU_MEMORY=4g|-e|GENV_CONTAINER_TOKEN|c",
		"run|--over-subscribe|c":             "run|--runtime|genv|-e|GENV_ALLOW_OVER_SUBSCRIPTION=1|-e|GENV_CONTAINER_TOKEN|c",
		"run|--runtime|other|c":              "run|--runtime|other|-e|GENV_CONTAINER_TOKEN|c",
		"container|create|c|--gpu-memory":    "container|create|--runtime|genv|-e|GENV_CONTAINER_TOKEN|c|--gpu-memory",
		"-H|unix:///x|run|c":                 "-H|unix:///x|run|--runtime|genv|-e|GENV_CONTAINER_TOKEN|c",
		"ps|--gpu-memory":                    "ps|--gpu-memory",
		"run|--gpus":                         "run|--gpus",
	} {
		var handed, environ []string
		s := docker.Shim{Real: "/usr/bin/docker", Args: words(line), Environ: []string{"A=1"}, Exec: func(_ string, argv, env []string) error {
			handed, environ = argv[1:], env
			return nil
		}}
		asked := 0
		require.NoError(t, s.RunOwn(false, func() string { asked++; return "secret" }), line)
		require.Equal(t, words(want), handed, line)
		if asked > 0 {
			require.Equal(t, []string{"A=1", "GENV_CONTAINER_TOKEN=secret"}, environ, "other users can't read it there")
		} else {
			require.Equal(t, []string{"A=1"}, environ)
		}
		require.NoError(t, s.RunOwn(false, func() string { return "" }), line)
		require.NotContains(t, handed, "GENV_CONTAINER_TOKEN", "without root's service")
		require.Equal(t, []string{"A=1"}, environ)
	}
	s := docker.Shim{Exec: func(string, []string, []string) error { require.Fail(t, "it is started"); return nil }}
	for _, line := range []string{"run|--gpu-memory|much|c", "run|--gpu-memory|0|c", "run|--unknown|c"} {
		s.Args = words(line)
		require.Error(t, s.RunOwn(false, func() string { return "" }), line)
	}
	var handed []string
	s = docker.Shim{Args: words("run|c"), Exec: func(_ string, argv, _ []string) error { handed = argv; return nil }}
	require.NoError(t, s.RunOwn(true, func() string { return "" }))
	require.Contains(t, handed, "GENV_ALLOW_OVER_SUBSCRIPTION=1", "of the caller's environment")
}

func TestTheShimHandsOnItsToken(t *testing.T) {
	env := two
	env.Token = "secret"
	var handed, environ []string
	s := docker.Shim{
		Real: "/usr/bin/docker", Args: words("run|--gpus|all|c"), Environment: func() (docker.ContainerEnvironment, error) { return env, nil },
		Exec: func(_ string, argv, env []string) error { handed, environ = argv, env; return nil },
	}
	require.NoError(t, s.Run())
	require.Equal(t, words("/usr/bin/docker|run|"+gpu+"|"+ids+"|-e|GENV_CONTAINER_TOKEN|c"), handed)
	require.Equal(t, []string{"GENV_CONTAINER_TOKEN=secret"}, environ)
	s.Args = words("ps")
	require.NoError(t, s.Run())
	require.Empty(t, environ)
}
