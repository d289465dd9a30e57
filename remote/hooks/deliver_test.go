package hooks_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/hooks"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failures gathers what did not arrive.
type failures struct {
	mu   sync.Mutex
	list []string
	// arrived are those that did.
	arrived []hooks.Post
}

func (f *failures) add(r hooks.Post) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Err == nil {
		f.arrived = append(f.arrived, r)
		return
	}
	f.list = append(f.list, r.Err.Error())
}

// sendOnce sends one event to one hook, and returns what failed.
func sendOnce(t *testing.T, h policy.Hook, event policy.HookEvent, body string) []string {
	t.Helper()
	if h.On == nil {
		h.On = []policy.HookEvent{policy.OnWarn, policy.OnAct}
	}
	if h.Timeout == 0 {
		h.Timeout = 10 * time.Second
	}
	var failed failures
	q := hooks.NewQueue([]policy.Hook{h}, failed.add)
	q.Send(hooks.Post{Event: event, JSON: []byte(body)})
	q.Close(time.Minute)
	q.Send(hooks.Post{Event: event, JSON: []byte("too late, and no harm")})
	return failed.list
}

// script is a program that does what the shell text says.
func script(t *testing.T, text string) []string {
	path := filepath.Join(t.TempDir(), "hook")
	require.NoError(t, proctest.WriteProgram(path, []byte("#!/bin/sh\n"+text)))
	return []string{path, "an argument"}
}

func TestACommandGetsTheEventOnItsStdin(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	require.Empty(t, sendOnce(t, policy.Hook{Command: script(t, `{ echo "$1 $GENV_EVENT"; cat; } > `+out)}, "warn", `{"a":1}`))
	require.Equal(t, "an argument warn\n{\"a\":1}", proctest.ReadText(t, out))
}

// A program that leaves something behind, which holds its output, has done its work all the same.
func TestACommandThatLeavesAChildIsNotRunAgain(t *testing.T) {
	dir := t.TempDir()
	failed := sendOnce(t, policy.Hook{Command: script(t, "echo run >> "+dir+"/runs; sleep 20 & echo $! > "+dir+"/child"), Retries: 2}, "act", "x")
	child := proctest.ReadFile(t, dir+"/child")
	pid := proctest.Try(strconv.Atoi(strings.TrimSpace(string(child)))).OK(t)
	_ = syscall.Kill(pid, syscall.SIGKILL) // if it is there
	require.Empty(t, failed)
	require.Equal(t, "run\n", proctest.ReadText(t, dir+"/runs"))
}

func TestOnlyTheEventsThatAreWanted(t *testing.T) {
	require.Empty(t, sendOnce(t, policy.Hook{Command: []string{"/bin/false"}, On: []policy.HookEvent{policy.OnLimit}}, "warn", ""))
}

func TestACommandThatFailsSaysWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		hook policy.Hook
		want string
	}{
		"it says no":      {policy.Hook{Command: script(t, "echo no such channel >&2; exit 3")}, "exit status 3: no such channel"},
		"it is not there": {policy.Hook{Command: []string{"/no/such/program"}}, "no such file"},
		"it hangs, with children": {
			policy.Hook{Command: script(t, "sleep 1000 & sleep 1000"), Timeout: 200 * time.Millisecond},
			"it did not end within 200ms and was killed",
		},
		"it says a lot": {policy.Hook{Command: script(t, "yes 2>&1 | head -c 1000000; exit 1")}, "exit status 1: y y"},
	} {
		t.Run(name, func(t *testing.T) {
			failed := sendOnce(t, tt.hook, "act", "x")
			require.Len(t, failed, 1)
			require.Contains(t, failed[0], tt.want)
			require.Less(t, len(failed[0]), 1000)
		})
	}
}

func TestAWebhookThatHangs(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or it isn't noticed that the client has gone
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	failed := sendOnce(t, policy.Hook{Webhook: server.URL, Timeout: 100 * time.Millisecond}, "act", "x")
	require.Equal(t, []string{"hook " + server.URL + `: an event "act" did not arrive: no answer within 100ms`}, failed)
}

func TestAWebhookIsTriedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		answers []int
		retries int
		tries   int
		fails   bool
	}{
		"at once":                     {[]int{200}, 2, 1, false},
		"nothing to say":              {[]int{204}, 2, 1, false},
		"after a hiccup":              {[]int{503, 200}, 2, 2, false},
		"not for ever":                {[]int{500, 500, 500, 200}, 1, 2, true},
		"not when it is our mistake":  {[]int{404, 200}, 2, 1, true},
		"not elsewhere":               {[]int{302, 200}, 2, 1, true},
		"when it is asked for a rest": {[]int{429, 200}, 2, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || string(body) != `{"a":1}` || r.Header.Get("Content-Type") != "application/json" {
					t.Errorf("got %q, %v", body, err)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.answers[tries])
				tries++
			}))
			defer server.Close()
			defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
			failed := sendOnce(t, policy.Hook{Webhook: server.URL + "/secret?token=1", Retries: tt.retries}, "act", `{"a":1}`)
			require.Equal(t, tt.fails, len(failed) == 1, failed)
			require.Equal(t, tt.tries, tries)
			require.NotContains(t, strings.Join(failed, ""), "secret", "an address may be a password")
		})
	}
}

// A hook that hangs delays no other hook, costs no more than its queue, and says what is dropped.
func TestASlowHookDelaysNoOther(t *testing.T) {
	var failed failures
	slow := policy.Hook{Command: script(t, "exec sleep 1000"), Timeout: time.Hour, On: []policy.HookEvent{policy.OnWarn}}
	out := filepath.Join(t.TempDir(), "out")
	quick := policy.Hook{Command: script(t, "echo told >> "+out), Timeout: time.Minute, On: []policy.HookEvent{policy.OnWarn}}
	q := hooks.NewQueue([]policy.Hook{slow, quick}, failed.add)
	q.Send(hooks.Post{Event: "warn"})
	require.Eventually(t, func() bool { _, err := os.Stat(out); return err == nil }, time.Minute, time.Millisecond)
	for range 500 {
		q.Send(hooks.Post{Event: "warn"})
	}
	q.Close(0)
	require.Greater(t, len(failed.list), 400)
	require.Contains(t, failed.list[0], "it is too slow: an event \"warn\" is dropped, since 64 wait already")
}

func TestEachHookHasAResult(t *testing.T) {
	var results failures
	q := hooks.NewQueue([]policy.Hook{
		{Command: []string{"/bin/true"}, On: []policy.HookEvent{"act"}, Timeout: time.Minute},
		{Command: []string{"/bin/false"}, On: []policy.HookEvent{"act"}, Timeout: time.Minute},
		{Command: []string{"/bin/true"}, On: []policy.HookEvent{"warn"}, Timeout: time.Minute},
	}, results.add)
	q.Send(hooks.Post{Event: "act", IDs: []string{"x"}})
	q.Close(time.Minute)
	require.Len(t, results.list, 1)
	require.Len(t, results.arrived, 1)
	require.Equal(t, "/bin/true", results.arrived[0].To)
	require.Equal(t, []string{"x"}, results.arrived[0].IDs)
	require.Equal(t, audit.ChannelCommand, results.arrived[0].Channel)
}
