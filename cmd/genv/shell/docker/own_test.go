package docker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell/docker"
)

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
