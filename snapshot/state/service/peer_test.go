package service_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// etc has a range for mallory, in which erin has an account, and one that is also alice's.
var etc = map[string]string{
	"passwd": accountLines(map[string]int{"root": 0, "alice": alice, "mallory": mallory, "erin": 100_500}),
	"subuid": "mallory:100000:65536\nalice:110000:10\n", "nsswitch.conf": "passwd: files\n",
}

func accountLines(uids map[string]int) (passwd string) {
	for name, uid := range uids {
		passwd += fmt.Sprintf("%s:x:%d:%d::/:/bin/sh\n", name, uid, uid)
	}
	return passwd
}

// A user with subordinate uids (subuid(5)) has no more connections than others.
func TestSubordinateUIDsCountForTheirUser(t *testing.T) {
	if !proctest.InEtc(t, etc) {
		return
	}
	const first, users = 100_000, 6
	h := newHost(t, 1)
	h.proc = proc.FS{}
	h.serve(t, service.Bounds{Connections: users, PerUser: 2, Send: time.Minute})
	for uid := range snapshot.UID(users) { // until that is known, a uid counts for its range
		require.EqualValues(t, mallory, h.proc.AllAccounts().Resolve(t.Context(), first+uid))
	}
	h.sit(t, mallory, 1, "")
	for i := range users {
		h.sit(t, first+i, 1, "")
	}
	h.sit(t, alice, 1, "")
	status := proctest.Try(service.Client{Path: h.socket, Retry: time.Second}.Status(t.Context())).OK(t)
	require.Equal(t, 4, status.Connections, "two of mallory, one of alice, and this one")
	require.EqualValues(t, users-1, status.Refused)
}

// Who asks is an account: a subordinate uid is its owner, in requests and in the state.
func TestSubordinateUIDsAreTheirAccount(t *testing.T) {
	if !proctest.InEtc(t, etc) {
		return
	}
	h := newHost(t, 8)
	h.proc = proc.FS{}
	h.serve(t, service.Bounds{})
	for _, tt := range []struct {
		name      string
		uid       int
		want, not snapshot.UID // whose environment it is, and who may not change it
	}{
		{"a subordinate uid", 100_001, mallory, alice},
		{"an account in a range", 100_500, 100_500, mallory},
		{"the owner", mallory, mallory, 100_500},
	} {
		sleeper := proctest.Sleeper(t, tt.uid)
		eid := fmt.Sprint("e", tt.uid)
		require.Regexp(t, `now \[\d\]`, h.ask(t, tt.uid, fmt.Sprintf(`{"enter":{"eid":"%s","pid":%d,"attach":true,"config":{"gpus":1}}}`, eid, sleeper))[0], tt.name)
		files := h.files(t)
		require.Equal(t, tt.want, files.Environment(snapshot.EnvID(eid)).UID, tt.name)
		require.False(t, files.Environment(snapshot.EnvID(eid)).OwnerMismatch, tt.name)
		require.Contains(t, h.ask(t, int(tt.not), `{"detach":{"eid":"`+eid+`"}}`)[0], "not your environment", tt.name)
		require.Equal(t, "now []", h.ask(t, int(tt.want), `{"detach":{"eid":"`+eid+`"}}`)[0], tt.name)
	}
	for _, uid := range []int{110_001, 54_321} { // of two owners, of none
		refused := fmt.Sprintf("error: not a valid request: uid %d has no account on this host, so it gets no environment", uid)
		require.Equal(t, []string{refused, refused}, h.ask(t, uid, `{"enter":{"eid":"x","pid":PID}}`, `{"enter":{"eid":"x","kernel_id":"k"}}`))
	}
}

// A connection of a process that has ended is not served: with the uids of a user namespace
// one user could otherwise be counted as thousands.
func TestAConnectionThatOutlivesItsProcess(t *testing.T) {
	h := rootHost(t, 1)
	listener := proctest.Try(service.Listen(h.socket)).OK(t) // it accepts later
	const users = 8
	connect := func(uid int) {
		fd := proctest.Try(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)).OK(t)
		conn := os.NewFile(uintptr(fd), "connection")
		t.Cleanup(func() { _ = conn.Close() })
		connecting := child(t, uid, "connect", h.socket)
		connecting.Stdin = conn
		proctest.Output(t, connecting)
	}
	for i := range users {
		connect(1_500_000_000 + i)
		connect(mallory)
	}
	h.serveOn(t, listener, service.Bounds{Connections: 2 * users, PerUser: users, Burst: users, Rate: 1e-6, Send: time.Minute})
	require.Eventually(t, func() bool {
		status := proctest.Try(h.client().Status(t.Context())).OK(t)
		return status.Connections == 1
	}, 10*time.Second, time.Second, "each look is one of the few requests that root has, too")
	require.Contains(t, h.ask(t, mallory, `{"enter":{"eid":"a","pid":PID}}`)[0], "too many requests", "they cost credit")
}

// A token proves the user at the other end of the socket, once, and to root alone.
func TestTokensProveWhoAsked(t *testing.T) {
	h := rootHost(t, 1)
	_, stop := h.serve(t, service.Bounds{})
	ask := func(uid int, flags uintptr, args ...string) (string, error) {
		cmd := child(t, uid, "token", append([]string{h.socket}, args...)...)
		cmd.SysProcAttr.Cloneflags = flags
		output, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(output)), err
	}
	hers, err := ask(alice, 0, "10")
	require.NoError(t, err, hers)
	output, err := ask(mallory, 0, "", hers)
	require.Error(t, err)
	require.Contains(t, output, "only root's container runtime redeems tokens")
	output, err = ask(0, syscall.CLONE_NEWPID, "", hers)
	require.Error(t, err)
	require.Contains(t, output, "only root's container runtime", "root of a container is not root of the host")
	output, err = ask(0, 0, "", hers)
	require.NoError(t, err, output)
	require.Equal(t, "uid 4001 eid 10", output, "what others tried has not used it up")
	output, err = ask(0, 0, "", hers)
	require.Error(t, err)
	require.Contains(t, output, "the token was used before")

	output, err = ask(alice, syscall.CLONE_NEWPID, "10")
	require.Error(t, err, "a container can have processes of any uid")
	require.Contains(t, output, "another PID namespace")
	output, err = ask(alice, 0, "a\nb")
	require.Error(t, err)
	require.Contains(t, output, state.ErrRequest.Error())

	last, err := ask(alice, 0, "")
	require.NoError(t, err, last)
	stop()
	require.NoError(t, os.RemoveAll(h.socket))
	h.serve(t, service.Bounds{})
	require.ErrorIs(t, proctest.Try(h.client().Redeem(context.Background(), last)).Err, state.ErrRequest, "it was of another service")
	require.ErrorIs(t, proctest.Try(h.client().Redeem(context.Background(), strings.Repeat("x", grant.MaxToken+1))).Err, state.ErrRequest)
}
