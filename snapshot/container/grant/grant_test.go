package grant_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/container/oci"
	gpustate "github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
)

const (
	alice, bob snapshot.UID = 1001, 1002
	hook                    = `"hooks":{"prestart":[{"path":"/usr/bin/nvidia-container-runtime-hook","args":["x","prestart"]}]}`
)

var (
	id  = strings.Repeat("4c01db0b339c0a1f", 4)
	now = snapshot.DateOf(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
)

// config is a config.json with variables and, if there is one, another part.
func config(t testing.TB, env, part string) *oci.ContainerConfig {
	t.Helper()
	var list []string
	if env != "" {
		list = strings.Split(env, " ")
	}
	data := proctest.Try(json.Marshal(list)).OK(t)
	if part != "" {
		part = "," + part
	}
	c := proctest.Try(oci.Parse([]byte(`{"process":{"env":` + string(data) + `}` + part + `}`))).OK(t)
	return c
}

func devices(list string) string { return `"linux":{"devices":[` + list + `]}` }

func TestAsked(t *testing.T) {
	all := `"resources":{"devices":[{"allow":false,"access":"rwm"},{"allow":true,"access":"rwm"}]}`
	for name, row := range map[string]struct {
		env, part string
		nvidia    bool
		want      grant.GPURequest
	}{
		"nothing":                         {"PATH=/bin", "", false, grant.GPURequest{}},
		"an image of CUDA without --gpus": {"NVIDIA_VISIBLE_DEVICES=all", "", false, grant.GPURequest{}},
		"with NVIDIA's runtime":           {"NVIDIA_VISIBLE_DEVICES=all", "", true, grant.GPURequest{All: true}},
		"--gpus all":                      {"NVIDIA_VISIBLE_DEVICES=all", hook, false, grant.GPURequest{All: true}},
		"the last one counts":             {"NVIDIA_VISIBLE_DEVICES=all NVIDIA_VISIBLE_DEVICES=1", hook, false, grant.GPURequest{Names: []string{"1"}}},
		"--gpus 2":                        {"NVIDIA_VISIBLE_DEVICES=0,1", hook, false, grant.GPURequest{Names: []string{"0", "1"}}},
		"--gpus device=UUID":              {"NVIDIA_VISIBLE_DEVICES=GPU-a", hook, false, grant.GPURequest{Names: []string{"GPU-a"}}},
		"--gpus 0":                        {"NVIDIA_VISIBLE_DEVICES=void", hook, false, grant.GPURequest{}},
		"none":                            {"NVIDIA_VISIBLE_DEVICES=none", "", true, grant.GPURequest{}},
		"another hook":                    {"NVIDIA_VISIBLE_DEVICES=all", `"hooks":{"prestart":[{"path":"/proc/1/exe"}]}`, false, grant.GPURequest{}},
		"a number of its own": {
			"GENV_GPUS=2 GENV_GPU_MEMORY=4g GENV_ALLOW_OVER_SUBSCRIPTION=1 GENV_ENVIRONMENT_NAME=a", "", false,
			grant.GPURequest{Count: 2, Memory: snapshot.MustMemory("4g"), OverSubscribe: true, Called: "a"},
		},
		"which replaces that of docker": {"GENV_GPUS=1 NVIDIA_VISIBLE_DEVICES=0", hook, false, grant.GPURequest{Count: 1}},
		"all of its own":                {"GENV_GPUS=all", "", false, grant.GPURequest{All: true}},
		"no device":                     {"GENV_GPUS=0 GENV_GPU_MEMORY=nonsense", "", false, grant.GPURequest{}},
		"a token and a claim":           {"GENV_CONTAINER_TOKEN=t GENV_ENVIRONMENT_ID=42", "", false, grant.GPURequest{Token: "t", EID: "42"}},
		"CDI for the runtime":           {"", `"annotations":{"cdi.k8s.io/x":"nvidia.com/gpu=1,nvidia.com/gpu=0,vendor.com/net=eth0","y":"nvidia.com/gpu=3"}`, false, grant.GPURequest{Names: []string{"0", "1"}}},
		"all by CDI":                    {"", `"annotations":{"cdi.k8s.io/x":"nvidia.com/gpu=all"}`, false, grant.GPURequest{All: true}},
		"CDI, with NVIDIA's void":       {"NVIDIA_VISIBLE_DEVICES=void", devices(`{"path":"/dev/nvidia1","type":"c","major":195,"minor":1},{"path":"/dev/nvidiactl","type":"c","major":195,"minor":255},{"path":"/dev/fuse","type":"c","major":10,"minor":229}`), false, grant.GPURequest{Minors: []int{1}}},
		"under another name":            {"", devices(`{"path":"/dev/null2","type":"c","major":195,"minor":7}`), false, grant.GPURequest{Minors: []int{7}}},
		"--privileged":                  {"", `"linux":{"devices":[{"path":"/dev/nvidia1","type":"c","major":195,"minor":1}],` + all + `}`, false, grant.GPURequest{}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.want, proctest.Try(grant.Asked(config(t, row.env, row.part), row.nvidia)).OK(t))
		})
	}
}

func TestAskedIsChecked(t *testing.T) {
	for _, env := range []string{
		"GENV_GPUS=-1", "GENV_GPUS=many", "GENV_GPUS=99999999999", "GENV_GPUS=1 GENV_GPU_MEMORY=much", "GENV_GPUS=1 GENV_GPU_MEMORY=0",
		"GENV_GPUS=1 GENV_ENVIRONMENT_NAME=" + strings.Repeat("x", 300),
	} {
		r, err := grant.Asked(config(t, env, ""), false)
		require.ErrorIs(t, err, grant.ErrRequest, env)
		require.True(t, r.AsksForGPUs() || strings.HasPrefix(env, "GENV_GPUS="), env)
	}
	many := "NVIDIA_VISIBLE_DEVICES="
	for i := range 2000 {
		many += fmt.Sprintf("%d,", i)
	}
	require.ErrorIs(t, proctest.Try(grant.Asked(config(t, many, ""), true)).Err, grant.ErrRequest)
}

// files have environment 10 of alice with devices 0 and 1, 20 of bob with 2, and 3 is free.
func files() *state.Files {
	f := &state.Files{Environments: []snapshot.Environment{
		{EID: "10", UID: alice, Username: "alice", Creation: now, PIDs: []snapshot.PID{10}, Config: snapshot.EnvConfig{Name: "hers"}},
		{EID: "20", UID: bob, Username: "bob", Creation: now, PIDs: []snapshot.PID{20}},
		{EID: "30", UID: alice, Username: "alice", Creation: now, PIDs: []snapshot.PID{30}},
	}}
	for i, eid := range []snapshot.EnvID{"10", "10", "20", ""} {
		d := snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MustMemory("80g"), Attachments: []snapshot.Attachment{}}
		if eid != "" {
			d.Attachments = append(d.Attachments, snapshot.Attachment{EID: eid, Time: now})
		}
		f.Devices = append(f.Devices, d)
	}
	return f
}

// gpus are those of the machine, of which index i has minor 3-i.
func gpus() (list []hardware.BusDevice) {
	for i := range 4 {
		list = append(list, hardware.BusDevice{Index: snapshot.DeviceIndex(i), UUID: snapshot.GPUUUID(fmt.Sprintf("GPU-%d0000000", i)), Minor: new(3 - i)})
	}
	return list
}

type indices = []snapshot.DeviceIndex

func proved(uid snapshot.UID, eid snapshot.EnvID) *grant.ProvedUser {
	return &grant.ProvedUser{UID: uid, EID: eid}
}

func TestClaim(t *testing.T) {
	all, one := grant.GPURequest{All: true}, grant.GPURequest{Count: 1}
	names := func(list ...string) grant.GPURequest { return grant.GPURequest{Names: list} }
	for name, row := range map[string]struct {
		request grant.GPURequest
		proof   *grant.ProvedUser
		shared  bool
		eid     snapshot.EnvID // of the container; empty for none
		uid     snapshot.UID   // of the environment
		devices indices
		err     string
	}{
		"all of her environment":         {all, proved(alice, "10"), false, "10", alice, indices{0, 1}, ""},
		"one by number":                  {one, proved(alice, "10"), false, "10", alice, indices{0}, ""},
		"one by index":                   {names("1"), proved(alice, "10"), false, "10", alice, indices{1}, ""},
		"one by UUID":                    {names("GPU-1"), proved(alice, "10"), false, "10", alice, indices{1}, ""},
		"one by its node":                {grant.GPURequest{Minors: []int{3}}, proved(alice, "10"), false, "10", alice, indices{0}, ""},
		"none of them":                   {grant.GPURequest{}, proved(alice, "10"), false, "10", alice, nil, ""},
		"all of none":                    {all, proved(alice, "30"), false, "30", alice, nil, ""},
		"another's device":               {names("0", "2"), proved(alice, "10"), false, "", 0, nil, "GPU 2 is not attached to environment 10, which has 0,1"},
		"a free device":                  {names("3"), proved(alice, "10"), false, "", 0, nil, "GPU 3 is not attached"},
		"another's node":                 {grant.GPURequest{Minors: []int{1}}, proved(alice, "10"), false, "", 0, nil, "GPU 2 is not attached"},
		"a node that isn't known":        {grant.GPURequest{Minors: []int{9}}, proved(alice, "10"), false, "", 0, nil, "which GPU /dev/nvidia9 is isn't known"},
		"more than she has":              {grant.GPURequest{Count: 3}, proved(alice, "10"), false, "", 0, nil, "3 GPUs are more than environment 10 has (2)"},
		"a GPU that doesn't exist":       {names("GPU-9"), proved(alice, "10"), false, "", 0, nil, `there is no GPU "GPU-9"`},
		"an ambiguous UUID":              {names("GPU-"), proved(alice, "10"), false, "", 0, nil, "there is no GPU"},
		"an index that doesn't exist":    {names("7"), proved(alice, "10"), false, "", 0, nil, "There is no GPU 7"},
		"a number and a name":            {grant.GPURequest{Count: 1, Names: []string{"0"}}, proved(alice, "10"), false, "", 0, nil, "use one of both"},
		"in no environment":              {one, proved(alice, ""), false, "4c01db0b339c", alice, indices{3}, ""},
		"in one that has ended":          {one, proved(alice, "9"), false, "4c01db0b339c", alice, indices{3}, ""},
		"in one that is another's now":   {one, proved(alice, "20"), false, "4c01db0b339c", alice, indices{3}, ""},
		"no GPU, in no environment":      {grant.GPURequest{}, proved(alice, ""), false, "", 0, nil, ""},
		"without a proof":                {one, nil, false, "4c01db0b339c", grant.Nobody, indices{3}, ""},
		"by name without a proof":        {names("3"), nil, false, "4c01db0b339c", grant.Nobody, indices{3}, ""},
		"an attached one without":        {names("0"), nil, false, "", 0, nil, "Device 0 is not available (GPU 0: environment 10 of alice(1001) has it since"},
		"all without a proof":            {all, nil, false, "", 0, nil, "Device 0 is not available"},
		"too many":                       {grant.GPURequest{Count: 2}, nil, false, "", 0, nil, "Requested more devices (2) than currently available (1)"},
		"too many, over-subscribed":      {grant.GPURequest{Count: 2, OverSubscribe: true}, nil, false, "4c01db0b339c", grant.Nobody, indices{0, 3}, ""},
		"a claim without a proof":        {grant.GPURequest{EID: "10", Count: 1}, nil, false, "4c01db0b339c", grant.Nobody, indices{3}, ""},
		"a claim, and its device":        {grant.GPURequest{EID: "10", Names: []string{"0"}}, nil, false, "", 0, nil, "Device 0 is not available"},
		"a claim against the proof":      {grant.GPURequest{EID: "10", All: true}, proved(bob, "20"), false, "20", bob, indices{2}, ""},
		"no GPU without a proof":         {grant.GPURequest{EID: "10"}, nil, false, "", 0, nil, ""},
		"a claim where all users write":  {grant.GPURequest{EID: "10", Names: []string{"0"}}, nil, true, "10", alice, indices{0}, ""},
		"of another's device":            {grant.GPURequest{EID: "10", Names: []string{"2"}}, nil, true, "", 0, nil, "GPU 2 is not attached"},
		"a number where all users write": {grant.GPURequest{EID: "10", Count: 1}, nil, true, "4c01db0b339c", grant.Nobody, indices{3}, ""},
		"an unknown one there":           {grant.GPURequest{EID: "9", Names: []string{"3"}}, nil, true, "4c01db0b339c", grant.Nobody, indices{3}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := files()
			c := grant.Applicant{GPURequest: row.request, Proof: row.proof, Container: id, PID: 77, Now: now, Username: "x", Hardware: gpus(), Shared: row.shared}
			g, err := c.Apply(f)
			if row.err != "" {
				require.ErrorContains(t, err, row.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, row.eid, g.EID)
			require.Equal(t, row.devices, g.Devices)
			require.Equal(t, row.eid != "" && (!row.shared || g.Own), g.Registered)
			if !g.Registered {
				require.Nil(t, f.EnvironmentOf(77))
				return
			}
			env := f.EnvironmentOf(77)
			require.Equal(t, row.eid, env.EID)
			require.Equal(t, row.uid, env.UID)
			require.Equal(t, env.EID == "4c01db0b339c", g.Own)
			require.Subset(t, f.AttachedTo(env.EID), row.devices)
			require.Equal(t, indices{0, 1}, f.AttachedTo("10"), "no other environment loses a device")
		})
	}
}

// A container in an environment with MIG instances sees these, and never the whole GPU.
func TestInstances(t *testing.T) {
	for name, row := range map[string]struct {
		request grant.GPURequest
		uuids   []snapshot.GPUUUID
		err     string
	}{
		"all":                     {grant.GPURequest{All: true}, []snapshot.GPUUUID{"MIG-a", "MIG-b", "GPU-10000000"}, ""},
		"the GPU":                 {grant.GPURequest{Names: []string{"0"}}, []snapshot.GPUUUID{"MIG-a", "MIG-b"}, ""},
		"an instance":             {grant.GPURequest{Names: []string{"MIG-a"}}, []snapshot.GPUUUID{"MIG-a", "MIG-b"}, ""},
		"another's instance":      {grant.GPURequest{Names: []string{"MIG-c"}}, nil, "there is no GPU"},
		"the node of the GPU":     {grant.GPURequest{Minors: []int{3}}, nil, "a device node is of a whole GPU"},
		"the other, whole device": {grant.GPURequest{Names: []string{"1"}}, []snapshot.GPUUUID{"GPU-10000000"}, ""},
	} {
		f := files()
		f.Devices[0].Attachments[0].Instances = []snapshot.GPUUUID{"MIG-a", "MIG-b"}
		f.Devices[2].Attachments[0].Instances = []snapshot.GPUUUID{"MIG-c"}
		g, err := grant.Applicant{GPURequest: row.request, Proof: proved(alice, "10"), Container: id, PID: 77, Now: now, Hardware: gpus()}.Apply(f)
		if row.err != "" {
			require.ErrorContains(t, err, row.err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, row.uuids, g.UUIDs, name)
	}
}

func TestOwnEnvironments(t *testing.T) {
	f := files()
	f.Environments = append(f.Environments, snapshot.Environment{EID: "4c01db0b339c", UID: bob, PIDs: []snapshot.PID{5}})
	c := grant.Applicant{GPURequest: grant.GPURequest{Count: 1, Memory: snapshot.MustMemory("4g"), Called: "train"}, Container: id, PID: 77, Now: now}
	g := proctest.Try(c.Apply(f)).OK(t)
	require.Equal(t, snapshot.EnvID("4c01db0b339c-2"), g.EID, "another has its name")
	env := f.Environment(g.EID)
	require.Equal(t, snapshot.EnvConfig{Name: "train", GPUMemory: snapshot.MustMemory("4g"), GPUs: new(1)}, env.Config)
	require.Equal(t, snapshot.Username("nobody"), env.Username)
	require.Equal(t, snapshot.MustMemory("4g"), f.Devices[3].Attachments[0].GPUMemory)
	c.States = map[snapshot.DeviceIndex]gpustate.State{3: gpustate.Unusable}
	require.ErrorContains(t, proctest.Try(c.Apply(files())).Err, "GPU 3 is unusable and is given to no user")
	f = files()
	f.Devices = nil
	require.ErrorIs(t, proctest.Try(c.Apply(f)).Err, state.ErrNoDevices)
}

func TestSetVariables(t *testing.T) {
	before := "PATH=/bin GENV_CONTAINER_TOKEN=t NVIDIA_VISIBLE_DEVICES=all GENV_ENVIRONMENT_ID=9"
	for name, row := range map[string]struct {
		granted grant.Granted
		env     string
		want    string
	}{
		"no environment": {grant.Granted{}, before, "PATH=/bin NVIDIA_VISIBLE_DEVICES=all GENV_ENVIRONMENT_ID=9"},
		"no GPU":         {grant.Granted{EID: "10", Name: "n"}, before, "PATH=/bin NVIDIA_VISIBLE_DEVICES=all GENV_ENVIRONMENT_ID=10 GENV_CONTAINER=1 GENV_ENVIRONMENT_NAME=n"},
		"UUIDs":          {grant.Granted{EID: "10", GPUs: true, Devices: indices{0, 1}, UUIDs: []snapshot.GPUUUID{"GPU-a", "GPU-b"}}, before, "PATH=/bin GENV_ENVIRONMENT_ID=10 GENV_CONTAINER=1 NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"},
		"CUDA's own":     {grant.Granted{EID: "10", GPUs: true, Devices: indices{0}, UUIDs: []snapshot.GPUUUID{"GPU-a"}}, "CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=0 GENV_ENVIRONMENT_ID=10 GENV_CONTAINER=1 NVIDIA_VISIBLE_DEVICES=GPU-a"},
		"unknown UUIDs":  {grant.Granted{EID: "10", GPUs: true, Devices: indices{0, 3}}, "", "GENV_ENVIRONMENT_ID=10 GENV_CONTAINER=1 NVIDIA_VISIBLE_DEVICES=0,3"},
		"no device left": {grant.Granted{EID: "10", GPUs: true, Memory: snapshot.MustMemory("4g")}, "", "GENV_ENVIRONMENT_ID=10 GENV_CONTAINER=1 GENV_GPU_MEMORY=4g NVIDIA_VISIBLE_DEVICES=void"},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, row.env, "")
			row.granted.SetVariables(c)
			require.Equal(t, strings.Split(row.want, " "), c.Env)
		})
	}
}
