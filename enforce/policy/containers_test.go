package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestExemptContainers(t *testing.T) {
	file := parse(t, `
exempt:
  users: [carol, root]
  uids: [0]
  containers:
    - {name: "monitor-*"}
    - {image: "lab/*:1", label: team=vision}
`)
	carol := snapshot.UID(1003)
	info := func(name, image string, labels map[string]string) *snapshot.ContainerInfo {
		return &snapshot.ContainerInfo{Name: name, Image: image, Labels: labels}
	}
	vision := map[string]string{"team": "vision"}
	for name, row := range map[string]struct {
		info *snapshot.ContainerInfo
		want string
	}{
		"by name":                      {info("monitor-1", "x", nil), "container monitor-1 (x): exempt, p.yaml:6:"},
		"by image and label":           {info("web", "lab/train:1", vision), "container web (lab/train:1): exempt, p.yaml:7:"},
		"a label that may be cut":      {&snapshot.ContainerInfo{Name: "web", Image: "lab/train:1", LabelsCut: true}, "container web (lab/train:1): exempt, p.yaml:7:"},
		"a runtime that tells nothing": {&snapshot.ContainerInfo{Unknown: true}, "container abc (its runtime does not answer): exempt, p.yaml:6:"},
		"started by an exempt user":    {&snapshot.ContainerInfo{UID: &carol, User: "carol", Proof: snapshot.ProofRecord}, "user carol: exempt, p.yaml:3:"},

		"another name":                     {info("web-monitor-1", "", nil), ""},
		"the image alone":                  {info("web", "lab/train:1", nil), ""},
		"the label alone":                  {info("web", "lab/train:2", vision), ""},
		"another value":                    {info("web", "lab/train:1", map[string]string{"team": "nlp"}), ""},
		"another value, and others cut":    {&snapshot.ContainerInfo{Image: "lab/train:1", Labels: map[string]string{"team": "nlp"}, LabelsCut: true}, ""},
		"root in a container, not proved":  {info("web", "", nil), ""},
		"a name that a rootless user gave": {&snapshot.ContainerInfo{Name: "monitor-1", UID: new(snapshot.UID), Proof: snapshot.ProofRootless}, ""},
		"in a container, nothing known":    {nil, ""},
	} {
		uid := snapshot.UID(0)
		p := &snapshot.Process{PID: 7, UID: &uid, Username: "root", Container: "abc", ContainerInfo: row.info}
		if row.info != nil && row.info.Proof == snapshot.ProofRootless {
			uid, p.Username = 1002, "bob"
			*row.info.UID = 1002
		}
		reason, exempt := file.Exempt(enforce.Subject{Host: "a", Process: p})
		require.Equal(t, row.want != "", exempt, name)
		require.Contains(t, reason, row.want, name)
	}
	none := parse(t, "exempt: {users: [carol]}")
	uid := snapshot.UID(1003) // as carol's uid, which anybody who may start containers can choose
	_, exempt := none.Exempt(enforce.Subject{Process: &snapshot.Process{UID: &uid, Username: "carol", Container: "abc", ContainerInfo: info("web", "", nil)}})
	require.False(t, exempt)
	_, exempt = none.Exempt(enforce.Subject{Process: &snapshot.Process{UID: &uid, Container: "abc", ContainerInfo: &snapshot.ContainerInfo{Unknown: true}}})
	require.False(t, exempt, "no container is exempt here")
}

func TestContainersSetting(t *testing.T) {
	file := parse(t, "defaults: {containers: judge}\noverrides:\n  - {hosts: [a], set: {containers: leave}}\n")
	require.True(t, file.Settings(enforce.Query{Host: "a"}).LeaveContainers)
	require.False(t, file.Settings(enforce.Query{Host: "b"}).LeaveContainers)
}

func TestContainersThatNoEntryDescribes(t *testing.T) {
	for text, want := range map[string]string{
		"exempt: {containers: [{label: team}]}":               `"team" is not a label; write it as KEY=VALUE`,
		"exempt: {containers: [{label: =x}]}":                 `"=x" is not a label; write it as KEY=VALUE`,
		"exempt: {containers: [{}]}":                          "a container is identified by its name, image or label",
		"exempt: {containers: [{user: carol}]}":               `unknown key "user"; use one of image, label, name`,
		"defaults: {containers: ignore}":                      "leave",
		"overrides: [{users: [b], set: {containers: leave}}]": "containers",
	} {
		_, err := policy.Parse("p.yaml", []byte(text))
		require.ErrorContains(t, err, want, text)
	}
}
