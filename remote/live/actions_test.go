package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// sendTo has the test binary send an action to a socket, as a process of its own.
const sendTo = "GENV_TEST_SEND_TO"

var hold = operator.Action{Schema: operator.ActionSchema, Kind: operator.Hold, Reason: "<b>&amp;"}

// serveActions serves actions on a socket, which it returns.
func serveActions(t *testing.T, do live.Do) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("POST "+live.ActionsPath, live.NewActions(do, func(_ context.Context, uid snapshot.UID) snapshot.Username {
		return snapshot.Username(fmt.Sprintf("user-%d", uid))
	}))
	return serve(t, mux)
}

// asked is a Do that remembers who asked for what.
type asked struct {
	who     operator.Author
	actions []operator.Action
	err     error
}

func (a *asked) do(_ context.Context, who operator.Author, action operator.Action) (operator.Answer, error) {
	a.who, a.actions = who, append(a.actions, action)
	return operator.Answer{Schema: operator.AnswerSchema, Done: true, Text: "done"}, a.err
}

func TestSend(t *testing.T) {
	var a asked
	path := serveActions(t, a.do)
	answer := proctest.Try(live.SendAction(t.Context(), path, hold)).OK(t)
	require.Equal(t, operator.Answer{Schema: operator.AnswerSchema, Done: true, Text: "done"}, answer)
	require.Equal(t, []operator.Action{hold}, a.actions, "as given")
	require.EqualValues(t, os.Geteuid(), a.who.UID)
	require.EqualValues(t, fmt.Sprintf("user-%d", os.Geteuid()), a.who.Name)

	for _, refusal := range []*operator.Refusal{
		operator.Refuse(operator.Changed, "Look again.", "it has changed"), operator.Refuse(operator.Busy, "Try again.", "busy"),
		operator.Refuse(operator.Unable, "Wait.", "not now"),
	} {
		a.err = refusal
		_, err := live.SendAction(t.Context(), path, hold)
		var got *operator.Refusal
		require.ErrorAs(t, err, &got)
		require.Equal(t, refusal, got)
	}
	a.err = errors.New("something else")
	_, err := live.SendAction(t.Context(), path, hold)
	require.ErrorContains(t, err, "something else")

	a.actions = nil
	require.ErrorContains(t, proctest.Try(live.SendAction(t.Context(), path, operator.Action{Kind: operator.Hold})).Err, "needs a reason")
	require.Empty(t, a.actions, "it isn't even sent")
	require.ErrorIs(t, proctest.Try(live.SendAction(t.Context(), path+"x", hold)).Err, os.ErrNotExist)
}

func TestRequestsThatAreNotUnderstood(t *testing.T) {
	var a asked
	path := serveActions(t, a.do)
	good := `{"schema":"genv.live.action/1","action":"release"}`
	for name, row := range map[string]struct {
		method, kind, body string
		status             int
	}{
		"good":             {"POST", "application/json; charset=utf-8", good, 200},
		"a form":           {"POST", "application/x-www-form-urlencoded", good, 400},
		"no type":          {"POST", "", good, 400},
		"text":             {"POST", "text/plain", good, 400},
		"GET":              {"GET", "application/json", good, 405},
		"empty":            {"POST", "application/json", "", 400},
		"no JSON":          {"POST", "application/json", "kill 5", 400},
		"two actions":      {"POST", "application/json", good + good, 400},
		"a list":           {"POST", "application/json", "[" + good + "]", 400},
		"an unknown field": {"POST", "application/json", `{"schema":"genv.live.action/1","action":"release","who":"alice"}`, 400},
		"long":             {"POST", "application/json", `{"schema":"` + strings.Repeat("x", 1<<20) + `"}`, 400},
		"a long end":       {"POST", "application/json", good + strings.Repeat(" ", 1<<20), 400},
		"a negative start": {"POST", "application/json", `{"start":-1}`, 400},
	} {
		a.actions = nil
		status, refusal := post(t, dialer(path), row.method, row.kind, row.body)
		require.Equal(t, row.status, status, name)
		require.Equal(t, row.status == 200, len(a.actions) == 1, name)
		if row.status == 400 {
			require.Equal(t, operator.Invalid, refusal.Code, name)
			require.NotEmpty(t, refusal.NextStep)
		}
	}
}

type dial func(ctx context.Context, network, address string) (net.Conn, error)

func dialer(path string) dial {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
}

func post(t *testing.T, dial dial, method, kind, body string) (int, operator.Refusal) {
	t.Helper()
	request := proctest.Try(http.NewRequestWithContext(t.Context(), method, "http://x"+live.ActionsPath, strings.NewReader(body))).OK(t)
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	response, err := (&http.Transport{DialContext: dial, DisableKeepAlives: true}).RoundTrip(request)
	require.NoError(t, err)
	defer response.Body.Close()
	data := proctest.Try(io.ReadAll(response.Body)).OK(t)
	var refusal operator.Refusal
	_ = json.Unmarshal(data, &refusal) // an answer has other fields
	return response.StatusCode, refusal
}

// as connects to a socket as another user: the kernel reports that of the thread which connects.
func as(uid int, path string) dial {
	return func(context.Context, string, string) (net.Conn, error) {
		type result struct {
			conn net.Conn
			err  error
		}
		connected := make(chan result)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			connect := func() (net.Conn, error) {
				fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return nil, err
				}
				file := os.NewFile(uintptr(fd), path)
				defer file.Close()
				if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
					return nil, errno
				}
				if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
					return nil, err
				}
				return net.FileConn(file)
			}
			conn, err := connect()
			connected <- result{conn, err}
		}()
		r := <-connected
		return r.conn, r.err
	}
}

// The group may look, and may not act, whatever the request says.
func TestOnlyRootAndTheController(t *testing.T) {
	proctest.NeedRoot(t)
	var a asked
	path := serveActions(t, a.do)
	for _, folder := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		require.NoError(t, os.Chmod(folder, 0o755))
	}
	require.NoError(t, os.Chmod(path, 0o666)) // as a group would be allowed to
	body := proctest.Try(json.Marshal(hold)).OK(t)
	for range 2 {
		status, refusal := post(t, as(60123, path), "POST", "application/json", string(body))
		require.Equal(t, 403, status)
		require.Equal(t, operator.Forbidden, refusal.Code)
		require.Equal(t, "only root and the controller's account (uid 0) may do this; you may look", refusal.Text)
		require.Empty(t, a.actions)
	}
	status, _ := post(t, as(0, path), "POST", "application/json", string(body))
	require.Equal(t, 200, status)
}

// After sudo the person is who logged in, whatever the environment says.
func TestTheUserWhoUsedSudo(t *testing.T) {
	proctest.NeedRoot(t)
	var a asked
	path := serveActions(t, a.do)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo 60123 > /proc/self/loginuid || exit 3; exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), sendTo+"="+path, "SUDO_USER=mallory", "USER=mallory", "LOGNAME=mallory")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() == 3 {
		t.Skip("this kernel keeps no login uid, or does not let us set it")
	}
	require.NoError(t, err, string(out))
	require.Equal(t, "user-60123 (uid 60123), as user-0", a.who.String())
}

// Without a unix socket the peer is not known.
func TestNotOverTCP(t *testing.T) {
	var a asked
	recorder := httptest.NewRecorder()
	request := proctest.Try(http.NewRequestWithContext(t.Context(), "POST", live.ActionsPath, strings.NewReader("{}"))).OK(t)
	request.Header.Set("Content-Type", "application/json")
	live.NewActions(a.do, nil).ServeHTTP(recorder, request)
	require.Equal(t, 403, recorder.Code)
	require.Empty(t, a.actions)
}

func TestWatchRefuses(t *testing.T) {
	path := serveActions(t, live.RefuseActions(operator.Refuse(operator.Unable, "Ask enforce.", "it changes nothing")))
	require.ErrorContains(t, proctest.Try(live.SendAction(t.Context(), path, hold)).Err, "it changes nothing")
}

// A server that is no controller is not believed.
func TestOtherAnswers(t *testing.T) {
	answers := make(chan string, 3)
	path := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer := <-answers
		if strings.HasPrefix(answer, "4") {
			w.WriteHeader(404)
		}
		fmt.Fprint(w, answer)
	}))
	for _, answer := range []string{"ok", "404 page not found", strings.Repeat(" ", 1<<20) + "{}"} {
		answers <- answer
		_, err := live.SendAction(t.Context(), path, hold)
		require.Error(t, err)
		var refusal *operator.Refusal
		require.False(t, errors.As(err, &refusal), "whether something was done is not known")
	}
}
