package container_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
)

// inspected is what Docker's API answers, and, with "ID" for "Id", what is in
// config.v2.json: constructed after the answers of dockerd 20.10.
func inspected(name, state string) string {
	return `{"Id":"` + id + `","Created":"2025-03-01T11:00:00Z","Path":"python","Name":"` + name + `","Image":"sha256:0123",` +
		`"Config":{"Hostname":"4c01db0b339c","Env":["PATH=/bin","GENV_ENVIRONMENT_ID=4242"],"Image":"pytorch:24.10","Labels":{"team":"vision"}},"State":` + state + `}`
}

const running = `{"Status":"running","Running":true,"Pid":4711,"StartedAt":"2025-03-01T12:00:00.5Z"}`

func TestParseDocker(t *testing.T) {
	web := container.Details{
		Name: "web", Image: "pytorch:24.10", Labels: map[string]string{"team": "vision"}, EID: "4242", Init: 4711,
	}
	stopped := web
	stopped.Init = 0
	for name, row := range map[string]struct {
		text string
		want container.Details
	}{
		"running":          {inspected("/web", running), web},
		"of Podman":        {inspected("web", running), web},
		"config.v2.json":   {strings.Replace(inspected("/web", running), `"Id"`, `"ID"`, 1), web},
		"stopped":          {inspected("/web", `{"Running":false,"Pid":0,"StartedAt":"2025-03-01T12:00:00.5Z"}`), stopped},
		"a PID, not alive": {inspected("/web", `{"Running":false,"Pid":4711}`), stopped},
	} {
		got, err := container.ParseDocker([]byte(row.text), id)
		require.NoError(t, err, name)
		require.Equal(t, row.want, got, name)
	}
	got, err := container.ParseDocker([]byte(inspected(`/a\u001b[2J`+strings.Repeat("x", 500), running)), id)
	require.NoError(t, err)
	require.Equal(t, "a?[2J"+strings.Repeat("x", 251), got.Name, "printable, and not too long")
	for name, text := range map[string]string{
		"nothing": "", "a list": "[]", "an error": `{"message":"No such container"}`, "a null": "null",
		"another container": strings.Replace(inspected("/web", running), id, strings.Repeat("0", 64), 1),
	} {
		_, err := container.ParseDocker([]byte(text), id)
		require.Error(t, err, name)
	}
}

// TestWhichEnvironmentAContainerWasStartedIn: the last variable counts, as for a process,
// and an id that no environment can have is none.
func TestWhichEnvironmentAContainerWasStartedIn(t *testing.T) {
	for env, want := range map[string]snapshot.EnvID{
		``: "", `"PATH=/bin"`: "", `"GENV_ENVIRONMENT_ID=7"`: "7", `"GENV_ENVIRONMENT_ID=7","GENV_ENVIRONMENT_ID=8"`: "8",
		`"GENV_ENVIRONMENT_ID="`: "", `"GENV_ENVIRONMENT_ID=a\nb"`: "", `"XGENV_ENVIRONMENT_ID=7"`: "",
	} {
		got, err := container.ParseDocker([]byte(`{"Id":"`+id+`","Config":{"Env":[`+env+`]}}`), id)
		require.NoError(t, err)
		require.Equal(t, want, got.EID, env)
	}
}

// The bundles are constructed after the annotations of containerd's CRI, nerdctl and CRI-O.
func TestParseBundle(t *testing.T) {
	for name, row := range map[string]struct{ annotations, name, image string }{
		"Kubernetes with containerd": {`"io.kubernetes.cri.container-name":"trainer","io.kubernetes.cri.sandbox-name":"job-0","io.kubernetes.cri.sandbox-namespace":"ml","io.kubernetes.cri.image-name":"docker.io/lab/train:1"`, "ml/job-0/trainer", "docker.io/lab/train:1"},
		"Kubernetes with CRI-O":      {`"io.kubernetes.container.name":"trainer","io.kubernetes.pod.name":"job-0","io.kubernetes.pod.namespace":"ml","io.kubernetes.cri-o.ImageName":"lab/train:1"`, "ml/job-0/trainer", "lab/train:1"},
		"nerdctl":                    {`"nerdctl/name":"web","nerdctl/namespace":"default"`, "web", ""},
		"none":                       {``, "", ""},
	} {
		got, err := container.ParseBundle([]byte(`{"ociVersion":"1.0.2","process":{"args":["sleep"],"env":["GENV_ENVIRONMENT_ID=4242"]},"annotations":{` + row.annotations + `}}`))
		require.NoError(t, err, name)
		require.Equal(t, row.name, got.Name, name)
		require.Equal(t, row.image, got.Image, name)
		require.Equal(t, snapshot.EnvID("4242"), got.EID, name)
		require.Zero(t, got.Init, name)
	}
	_, err := container.ParseBundle([]byte("x"))
	require.Error(t, err)
}

// Constructed after containers.json of containers/storage 1.43.
func TestParseStorage(t *testing.T) {
	list := `[{"id":"` + strings.Repeat("0", 64) + `","names":["other"]},{"id":"` + id + `","names":["web"],"image":"0123","metadata":"{\"image-name\":\"docker.io/library/pytorch:24.10\",\"name\":\"web\"}"}]`
	name, image, err := container.ParseStorage([]byte(list), id)
	require.NoError(t, err)
	require.Equal(t, []string{"web", "docker.io/library/pytorch:24.10"}, []string{name, image})
	name, image, err = container.ParseStorage([]byte(list), strings.Repeat("0", 64))
	require.NoError(t, err)
	require.Equal(t, []string{"other", ""}, []string{name, image})
	_, _, err = container.ParseStorage([]byte(list), strings.Repeat("1", 64))
	require.ErrorIs(t, err, container.ErrNotFound)
	_, _, err = container.ParseStorage([]byte("{"), id)
	require.Error(t, err)
}

// TestParseStorageOfPodman is what Podman 4.3.1 has written, recorded, and what it is after a
// `podman rename`, which leaves the metadata (constructed).
func TestParseStorageOfPodman(t *testing.T) {
	const of = "278694f4fbcf41efaff26d5c0e03e924d8356f5431a311591c66dd230c41d23e"
	recorded := `[{"id":"` + of + `","names":["web"],"image":"","layer":"c3a351c45218a147461c7408ed8de063bad2eb290bb8487dfe51bc7304d40217",` +
		`"metadata":"{\"image-name\":\"\",\"image-id\":\"\",\"name\":\"web\",\"created-at\":1795400297}",` +
		`"created":"2026-11-23T02:18:17.906591678Z","flags":{"MountLabel":"","ProcessLabel":""}}]`
	name, _, err := container.ParseStorage([]byte(recorded), of)
	require.NoError(t, err)
	require.Equal(t, "web", name)
	name, _, err = container.ParseStorage([]byte(strings.Replace(recorded, `["web"]`, `["shop"]`, 1)), of)
	require.NoError(t, err)
	require.Equal(t, "shop", name)
}

// FuzzParse: whatever an engine says, a snapshot with it can be sent and read.
func FuzzParse(f *testing.F) {
	f.Add([]byte(inspected("/web", running)))
	f.Add([]byte(`{"process":{"env":["GENV_ENVIRONMENT_ID=1"]},"annotations":{"nerdctl/name":"web"}}`))
	f.Add([]byte(`[{"id":"` + id + `","names":["web"],"metadata":"{\"image-name\":\"a\"}"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := container.ParseDocker(data, id); err == nil {
			checkDetails(t, d)
		}
		if d, err := container.ParseBundle(data); err == nil {
			checkDetails(t, d)
		}
		if name, image, err := container.ParseStorage(data, id); err == nil {
			checkDetails(t, container.Details{Name: name, Image: image})
		}
	})
}

// checkDetails says that a snapshot with what an engine says can be sent and read.
func checkDetails(t *testing.T, d container.Details) {
	t.Helper()
	for _, text := range []string{d.Name, d.Image} {
		require.NoError(t, snapshot.CheckText("name", text))
		require.True(t, utf8.ValidString(text))
	}
	require.Equal(t, d.EID, snapshot.Claim(string(d.EID)))
	require.GreaterOrEqual(t, int(d.Init), 0)
	labels, _ := snapshot.BoundedLabels(d.Labels)
	require.LessOrEqual(t, len(labels), snapshot.MaxContainerLabels)
	for key, value := range labels {
		require.NoError(t, snapshot.CheckText("label", key))
		require.NoError(t, snapshot.CheckText("label", value))
	}
}
