package policy_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/policy"
)

func TestReferences(t *testing.T) {
	const text = `
groups: {staff: [carol, "@admins"], admins: [root]}
overrides:
  - {users: [bob, "@staff"], hosts: ["gpu-[01-04]"], labels: {gpu: h100, rack: 2}, set: {idle: false}}
exempt:
  users: [dave, "@admins"]
  uids: [0]
  hosts: [gpu-90]
  devices: ["gpu-01:[0-3]", GPU-1234, "::1:0"]
  processes: [Xorg, {name: sshd, user: eve}]
  environments: [{user: frank, name: llm}, {host: gpu-02, eid: 4711}]
mail:
  sendmail: /usr/sbin/sendmail
  from: genv@example.org
  addresses: {alice: a@example.org}
  opt-out: [bob, "@staff"]
`
	references, err := policy.References("p.yaml", []byte(text))
	require.NoError(t, err)
	var got []string
	for _, r := range references {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%d:%d %s %s %s", r.Place.Line, r.Place.Column, r.Kind, r.Name, r.Value)))
	}
	require.Equal(t, []string{
		"2:18 user carol", "2:46 user root",
		"4:14 user bob", "4:38 host gpu-[01-04]", "4:63 label gpu h100", "4:74 label rack 2",
		"6:11 user dave", "8:11 host gpu-90", "9:13 host gpu-01", "9:39 host ::1",
		"10:40 user eve", "11:25 user frank", "11:51 host gpu-02",
		"15:15 user alice", "16:13 user bob",
	}, got)

	_, err = policy.References("p.yaml", []byte("groups: 3"))
	require.Error(t, err)
	example, err := os.ReadFile("../../policy.example.yaml")
	require.NoError(t, err)
	references, err = policy.References("policy.example.yaml", example)
	require.NoError(t, err)
	require.NotEmpty(t, references)
}
