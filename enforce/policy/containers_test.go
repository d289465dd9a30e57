package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
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
		"a runtime that tells nothing": {&snapshot.ContainerInfo{Unknown: true}, "container abc (not described by its runtime): exempt, p.yaml:6:"},
		"a runtime that tells a name":  {&snapshot.ContainerInfo{Unknown: true, Name: "web"}, "container web: exempt, p.yaml:7:"},
		"and one that is exempt":       {&snapshot.ContainerInfo{Unknown: true, Name: "monitor-1"}, "container monitor-1: exempt, p.yaml:6:"},
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
	byName := parse(t, `exempt: {containers: [{name: "ci-*"}, {name: "ci-*", image: "lab/*"}]}`)
	_, exempt = byName.Exempt(enforce.Subject{Process: &snapshot.Process{UID: &uid, Container: "abc", ContainerInfo: &snapshot.ContainerInfo{Unknown: true, Name: "web"}}})
	require.False(t, exempt, "its name is known")
}

// Containers of LXC, systemd-nspawn and Apptainer are known by their cgroups alone: they have no image and no labels.
func TestContainersKnownByTheirCgroupAlone(t *testing.T) {
	byName := parse(t, `exempt: {containers: [{name: "ci-*"}]}`)
	others := parse(t, `exempt: {containers: [{image: "*"}, {image: "ci*"}, {label: team=vision}, {label: "team="}, {name: "*", image: "*"}, {name: "*", label: team=}]}`)
	zero, bob := snapshot.UID(0), snapshot.UID(1002)
	for name, row := range map[string]struct {
		process snapshot.Process
		byName  bool
	}{
		"lxc":                         {snapshot.Process{UID: &zero, Container: "ci-1", ContainerInfo: &snapshot.ContainerInfo{Runtime: "lxc", Name: "ci-1"}}, true},
		"systemd-nspawn":              {snapshot.Process{UID: &zero, Container: "ci-1", ContainerInfo: &snapshot.ContainerInfo{Runtime: "systemd-nspawn", Name: "ci-1"}}, true},
		"an engine that has no image": {snapshot.Process{UID: &zero, Container: "abc", ContainerInfo: &snapshot.ContainerInfo{Runtime: "containerd", Name: "ci-1"}}, true},

		"lxc, another name":                   {snapshot.Process{UID: &zero, Container: "web", ContainerInfo: &snapshot.ContainerInfo{Runtime: "lxc", Name: "web"}}, false},
		"lxc, in a user's cgroup":             {snapshot.Process{UID: &bob, Username: "bob", Container: "ci-1"}, false},
		"lxc, in a user's namespace":          {snapshot.Process{UID: &bob, Container: "ci-1", ContainerInfo: &snapshot.ContainerInfo{Runtime: "lxc", Name: "ci-1", UID: &bob, Proof: snapshot.ProofRootless}}, false},
		"apptainer":                           {snapshot.Process{UID: &bob, Username: "bob", Container: "apptainer-4242"}, false},
		"apptainer, as root":                  {snapshot.Process{UID: &zero, Username: "root", Container: "apptainer-4242"}, false},
		"only a PID namespace":                {snapshot.Process{UID: &zero, Username: "root", Container: snapshot.UnnamedContainer}, false},
		"an id that is like an exempt name":   {snapshot.Process{UID: &zero, Container: "ci-1"}, false},
		"an engine that has neither":          {snapshot.Process{UID: &zero, Container: "ci-1", ContainerInfo: &snapshot.ContainerInfo{Runtime: "containerd"}}, false},
		"a name that is like an exempt image": {snapshot.Process{UID: &zero, Container: "cia", ContainerInfo: &snapshot.ContainerInfo{Runtime: "lxc", Name: "cia"}}, false},
	} {
		_, exempt := byName.Exempt(enforce.Subject{Host: "a", Process: &row.process})
		require.Equal(t, row.byName, exempt, name)
		_, exempt = others.Exempt(enforce.Subject{Host: "a", Process: &row.process})
		require.False(t, exempt, name)
	}
}

// Whatever a container has, no entry about its user exempts it, unless it is proved that the user started it.
func TestClaimsOfContainersAreNotExempt(t *testing.T) {
	file := parse(t, `
exempt:
  users: [carol, root]
  uids: [0, 1003]
  processes: [{name: Xorg, user: root}, {name: train, user: carol}]
  environments: [{user: carol, name: train}, {host: a, eid: 100}]
`)
	zero, carol, bob := snapshot.UID(0), snapshot.UID(1003), snapshot.UID(1002)
	carols := &snapshot.Environment{EID: "100", UID: carol, Username: "carol", Config: snapshot.EnvConfig{Name: "train"}}
	record := func(uid *snapshot.UID, user snapshot.Username) *snapshot.ContainerInfo {
		return &snapshot.ContainerInfo{Name: "web", UID: uid, User: user, Proof: snapshot.ProofRecord, EID: "100"}
	}
	for name, row := range map[string]struct {
		process snapshot.Process
		env     *snapshot.Environment
		exempt  bool
	}{
		"started by carol":                    {snapshot.Process{UID: &zero, Username: "root", ContainerInfo: record(&carol, "carol")}, nil, true},
		"by carol, in her environment":        {snapshot.Process{UID: &zero, Username: "root", ContainerInfo: record(&carol, "carol")}, carols, true},
		"carol's own engine":                  {snapshot.Process{UID: &carol, Username: "carol", ContainerInfo: &snapshot.ContainerInfo{UID: &carol, User: "carol", Proof: snapshot.ProofRootless}}, nil, true},
		"root":                                {snapshot.Process{UID: &zero, Username: "root", ContainerInfo: &snapshot.ContainerInfo{Name: "web"}}, nil, false},
		"root, an exempt name of a process":   {snapshot.Process{UID: &zero, Username: "root", Name: "Xorg", ContainerInfo: &snapshot.ContainerInfo{Name: "web"}}, nil, false},
		"root, on a host with an older genv":  {snapshot.Process{UID: &zero, Username: "root", Name: "Xorg"}, nil, false},
		"as carol":                            {snapshot.Process{UID: &carol, Username: "carol", ContainerInfo: &snapshot.ContainerInfo{Name: "web"}}, nil, false},
		"as carol, an exempt name":            {snapshot.Process{UID: &carol, Username: "carol", Name: "train", ContainerInfo: &snapshot.ContainerInfo{Name: "web"}}, nil, false},
		"with the id of carol's environment":  {snapshot.Process{UID: &zero, Username: "root", EID: "100", ContainerInfo: &snapshot.ContainerInfo{Name: "web"}}, carols, false},
		"as carol, with her environment's id": {snapshot.Process{UID: &carol, Username: "carol", EID: "100", ContainerInfo: &snapshot.ContainerInfo{Name: "web", EID: "100"}}, carols, false},
		"as carol, labelled so": {snapshot.Process{UID: &carol, Username: "carol", ContainerInfo: &snapshot.ContainerInfo{
			Name: "carol", Image: "carol", Labels: map[string]string{"genv.user": "carol", "genv.uid": "1003"},
		}}, nil, false},
		"started by bob as carol": {snapshot.Process{UID: &carol, Username: "carol", Name: "train", ContainerInfo: record(&bob, "bob")}, carols, false},
		"started by bob as root":  {snapshot.Process{UID: &zero, Username: "root", Name: "Xorg", ContainerInfo: record(&bob, "bob")}, nil, false},
		"bob's own engine":        {snapshot.Process{UID: &bob, Username: "bob", ContainerInfo: &snapshot.ContainerInfo{Name: "carol", UID: &bob, User: "bob", Proof: snapshot.ProofRootless}}, carols, false},
		"started by root, proved": {snapshot.Process{UID: &zero, Username: "root", Name: "Xorg", ContainerInfo: record(&zero, "root")}, nil, false},
	} {
		row.process.Container = "abc"
		_, exempt := file.Exempt(enforce.Subject{Host: "a", Process: &row.process, Environment: row.env})
		require.Equal(t, row.exempt, exempt, name)
	}
}

func TestContainersSetting(t *testing.T) {
	file := parse(t, "defaults: {containers: judge}\noverrides:\n  - {hosts: [a], set: {containers: leave}}\n")
	require.True(t, file.Settings(enforce.Query{Host: "a"}).LeaveContainers)
	require.False(t, file.Settings(enforce.Query{Host: "b"}).LeaveContainers)
}

func TestContainersThatNoEntryDescribes(t *testing.T) {
	refused(t, []bad{
		{"", "exempt: {containers: [{label: team}]}", `"team" is not a label; write it as KEY=VALUE`},
		{"", "exempt: {containers: [{label: =x}]}", `"=x" is not a label; write it as KEY=VALUE`},
		{"", "exempt: {containers: [{}]}", "a container is identified by its name, image or label"},
		{"", "exempt: {containers: [{user: carol}]}", `unknown key "user"; use one of image, label, name`},
		{"", "defaults: {containers: ignore}", "leave"},
		{"", "overrides: [{users: [b], set: {containers: leave}}]", "containers"},
	})
}
