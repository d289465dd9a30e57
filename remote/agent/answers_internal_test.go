package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot"
)

const someJSON = "{\n  \"a\": {\"b\": \"}{\\\"\"},\n  \"c\": [{}]\n}\n"

func TestJSONIn(t *testing.T) {
	for name, noise := range map[string]string{
		"nothing": "", "a line": "Welcome\n", "no newline": "Welcome", "an empty object": "{}\n", "an object without a newline": `{"a": 1}`,
		"braces": "{ {{ }} {\n", "an open quote": "{\"", "an open object": "{\"a\":\n", "an object that is not closed": `{"a": {"b": 1},`, "many": strings.Repeat("{ ", 5000) + "\n",
		"not text": "\x00\xff\x1b[2J",
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, someJSON, string(lastOf(noise+someJSON)))
			require.False(t, json.Valid(lastOf(noise+someJSON+"x")), "noise after it is not skipped")
			require.False(t, json.Valid(lastOf(noise+someJSON[:len(someJSON)-2])), "one that is cut is not used in part")
		})
	}
	require.Nil(t, lastOf("Welcome\n"))
	require.Nil(t, lastOf(""))
}

func lastOf(output string) []byte {
	return jsonIn([]byte(output), func([]byte) {})
}

func TestObjectsBeforeTheLast(t *testing.T) {
	for output, want := range map[string][]string{
		someJSON: nil, "{ {\n" + someJSON: nil,
		"{}\n" + someJSON: {"{}\n"}, someJSON + someJSON: {someJSON},
		`{"a": {"b": 1}} x {"c": 2}` + someJSON: {`{"a": {"b": 1}} `, `{"c": 2}`},
	} {
		var got []string
		jsonIn([]byte(output), func(object []byte) { got = append(got, string(object)) })
		require.Equal(t, want, got, "%q", output)
	}
}

// TestJSONInHasAnEnd: a host that sends nothing but open objects costs a bounded
// effort, which would be the square of its length otherwise.
func TestJSONInHasAnEnd(t *testing.T) {
	for _, hostile := range []string{`{"a":`, `{"a":1,`, `{"a":1} x`} {
		require.False(t, json.Valid(lastOf(strings.Repeat(hostile, 1<<14))))
	}
}

func FuzzJSONIn(f *testing.F) {
	for _, noise := range []string{"", "Welcome", "{}\n", "{\"", "{ {{", `{"a":{`} {
		f.Add([]byte(noise))
	}
	f.Fuzz(func(t *testing.T, noise []byte) {
		found := lastOf(string(noise) + someJSON)
		require.True(t, bytes.HasSuffix(found, []byte("}\n")))
		if json.Valid(found) {
			require.True(t, bytes.HasSuffix(found, []byte(someJSON)), "never a part of it: %q", found)
		}
	})
}

func TestWhatAHostSaysIsBounded(t *testing.T) {
	kept := boundLines([]string{strings.Repeat("x", 1<<20), "b", "c"}, 2)
	require.Len(t, kept, 2)
	require.Len(t, kept[0], 4096)
	require.Equal(t, "b", kept[1])
	require.Empty(t, boundLines(nil, 2))
	outcomes := []order.Outcome{{Reason: strings.Repeat("x", 1<<20)}, {Reason: "b"}}
	shortenReasons(outcomes)
	require.Len(t, outcomes[0].Reason, 1024)
	require.Equal(t, "b", outcomes[1].Reason)
}

func TestCheck(t *testing.T) {
	sent := order.Order{
		Detach:    []order.Detachment{{Device: 1, Environment: snapshot.Environment{EID: "7"}}},
		Terminate: []order.Termination{{Process: snapshot.Process{PID: 9, EID: "7"}}},
	}
	detached, ended := order.Outcome{Device: 1, EID: "7", Status: order.StatusDetached}, order.Outcome{PID: 9, EID: "7", Status: order.StatusKilled}
	with := func(change func(*order.Outcome)) []order.Outcome {
		o := ended
		change(&o)
		return []order.Outcome{detached, o}
	}
	require.NoError(t, checkOutcomes(sent, []order.Outcome{detached, ended}))
	for name, outcomes := range map[string][]order.Outcome{
		"none":                nil,
		"too few":             {detached},
		"too many":            {detached, ended, ended},
		"in another order":    {ended, detached},
		"another process":     with(func(o *order.Outcome) { o.PID++ }),
		"another environment": with(func(o *order.Outcome) { o.EID = "8" }),
		"another device":      with(func(o *order.Outcome) { o.Device = 1 }),
		"one twice":           {ended, ended},
		"a detachment twice":  {detached, detached},
		"without a status":    with(func(o *order.Outcome) { o.Status = "" }),
		"an unknown status":   with(func(o *order.Outcome) { o.Status = "x" }),
	} {
		require.Equal(t, remote.InvalidOutput, remote.ClassOf(checkOutcomes(sent, outcomes)), name)
	}
}

// The end of a stream is classified alike by the call that ended it, with its own
// context, and by the notice that it has ended, which has none.
func TestClassify(t *testing.T) {
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, tt := range map[string]struct {
		ctx  context.Context
		err  error
		want remote.Class
	}{
		"deadline of the call":      {late, context.DeadlineExceeded, remote.Timeout},
		"deadline, seen afterwards": {t.Context(), fmt.Errorf("x: %w", context.DeadlineExceeded), remote.Timeout},
		"cancelled call":            {stopped, context.Canceled, remote.Cancelled},
		"cancelled, seen later":     {t.Context(), context.Canceled, remote.Cancelled},
		"garbled answer":            {t.Context(), frame.ErrProtocol, remote.InvalidOutput},
		"refused":                   {t.Context(), ErrRefused, remote.CommandFailed},
		"another version":           {t.Context(), frame.ErrVersion, remote.Version},
		"a known error":             {late, remote.Errorf(remote.Auth, "no key"), remote.Auth},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, remote.ClassOf(classify(tt.ctx, tt.err)))
		})
	}
}

// The next step of a refusal is one for this controller: with --leader, or with a state folder.
func TestNextStepOfARefusal(t *testing.T) {
	folder := &fence.LeaseRequest{Who: fence.Folder("a")}
	elected := &fence.LeaseRequest{Who: fence.Election(1, "/genv/lab")}
	for name, tt := range map[string]struct {
		refusal error
		lease   *fence.LeaseRequest
		want    string
		later   bool
	}{
		"a later start":             {&fence.RefusedError{}, folder, folderStep, true},
		"a later leader":            {&fence.RefusedError{}, elected, electedStep, true},
		"it isn't elected any more": {&fence.RefusedError{}, nil, electedStep, true},
		"another source":            {&fence.RefusedError{Foreign: true}, elected, remote.Replaced.NextStep(), false},
		"it doesn't act any more":   {&fence.RefusedError{Foreign: true, Until: time.Unix(1, 0)}, elected, remote.Replaced.NextStep(), false},
		"an election of which none acts, by an earlier version": {errors.New(
			`refused: "a" acted on this host, since 2026-03-01T10:00:00Z, and has ended: the host waits for the next leader of its election`), folder, endedStep, false},
		"a name that ends like that, and acts": {&fence.RefusedError{Foreign: true, Name: "and has ended: the host waits for the next leader of its election"}, folder, remote.Replaced.NextStep(), false},
	} {
		bodies := map[string]string{"text of an older version": tt.refusal.Error()}
		if held := new(fence.RefusedError); errors.As(tt.refusal, &held) {
			bodies["code"] = coded(fmt.Errorf("wrapped: %w", tt.refusal)).Error()
		}
		for form, body := range bodies {
			err := refusedByHost(fmt.Errorf("x: %w", refusalOf([]byte(body))), tt.lease)
			require.Equal(t, remote.Replaced, remote.ClassOf(err), "%s: %s", name, form)
			require.Equal(t, tt.want, remote.NextStepOf(err), "%s: %s", name, form)
			require.Equal(t, tt.later, errors.Is(err, ErrLater), "%s: %s", name, form)
			require.ErrorIs(t, err, ErrRefused)
		}
	}
	for _, body := range []string{"", "no space", `{"code":"","text":"x"}`, coded(errors.New("refused: replaced by nobody")).Error()} {
		err := refusedByHost(refusalOf([]byte(body)), folder)
		require.Empty(t, err.Next)
		require.Equal(t, remote.CommandFailed, remote.ClassOf(err), body)
	}
	require.EqualError(t, refusalOf([]byte(coded(errors.New("no space")).Error())), "the host says: no space")
}

// A call that took too long says so in plain words, and is known for what it is.
func TestTimedOut(t *testing.T) {
	for text, err := range map[string]error{
		"no answer in time": context.DeadlineExceeded,
		"the answer is not waited for: no answer in time":    fmt.Errorf("%w: %w", errAbandoned, context.DeadlineExceeded),
		"no answer in time: the host did not read a request": errNotRead,
		"x: no answer in time (after)":                       fmt.Errorf("x: %w (after)", context.DeadlineExceeded),
	} {
		classified := classify(t.Context(), err)
		require.EqualError(t, classified, text)
		require.ErrorIs(t, classified, err)
	}
}
