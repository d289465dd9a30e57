package hooks_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/hooks"
	"github.com/seed-3119e985/genv/snapshot"
)

// oneEvent is a queue that keeps what it is sent.
type oneEvent []hooks.Post

func (q *oneEvent) Send(e hooks.Post) { *q = append(*q, e) }

// TestChat: what a channel of Slack or Mattermost reads.
func TestChat(t *testing.T) {
	now := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Local().Format("2006-01-02 15:04 MST") }
	outside := enforce.Finding{
		ID: "non-env-processes/gpu-04/4242/1", Rule: enforce.RuleNonEnvProcesses, Host: "gpu-04", PID: 4242, User: "bob", Command: "python",
		Pending: true, Due: now.Add(time.Hour), Terminate: []enforce.ProcessRef{{Host: "gpu-04", PID: 4242}},
	}
	named := func(user snapshot.Username, command string) *enforce.Finding {
		f := outside
		f.User, f.Command = user, command
		return &f
	}
	for name, tt := range map[string]struct {
		events  []enforce.Event
		records []audit.Record
		want    []string
	}{
		"a warning": {
			events: []enforce.Event{{Kind: enforce.EventNew, Finding: &outside}},
			want:   []string{":warning: *Warning* for `bob` on `gpu-04`, rule non-env-processes: `Process 4242 is not running in a GPU environment (user bob, python).` Unless this changes, at " + at(time.Hour) + ": process 4242 will be ended on gpu-04."},
		},
		"names that would mention people": {
			events: []enforce.Event{{Kind: enforce.EventNew, Finding: named("@here", "<!channel> & @all `*x*` http://x.example")}},
			want:   []string{":warning: *Warning* for `@\u200bhere` on `gpu-04`, rule non-env-processes: `Process 4242 is not running in a GPU environment (user @\u200bhere, \"&lt;!channel&gt; &amp; @\u200ball '*x*' http://…\").` Unless this changes, at " + at(time.Hour) + ": process 4242 will be ended on gpu-04."},
		},
		"an end": {
			events: []enforce.Event{{Kind: enforce.EventOutcome, Findings: []enforce.Finding{outside}}},
			records: []audit.Record{
				{Kind: audit.KindNotified, Text: "told"},
				{Kind: audit.KindOutcome, Host: "gpu-04", User: "bob", PID: 4242, Status: order.StatusTerminated, Why: []string{"Process 4242 is <!here>"}},
				{Kind: audit.KindOutcome, Host: "gpu-04", User: "eve", Device: new(snapshot.DeviceIndex(3)), Status: order.StatusDetached},
				{Kind: audit.KindOutcome, Host: "gpu-04", PID: 7, Status: order.StatusSurvived, Reason: "it did not end"},
				{Kind: audit.KindOutcome, Host: "gpu-04", PID: 8, Status: "<!channel>"},
			},
			want: []string{
				":octagonal_sign: *terminated:* process 4242 of `bob` on `gpu-04`, because of `Process 4242 is &lt;!here&gt;`\n" +
					":octagonal_sign: *detached:* GPU 3 of `eve` on `gpu-04`\n" +
					":octagonal_sign: *survived:* process 7 of `unknown user` on `gpu-04`, `it did not end`\n" +
					":octagonal_sign: *&lt;!channel&gt;:* process 8 of `unknown user` on `gpu-04`",
			},
		},
		"what is held back": {
			events: []enforce.Event{{Kind: enforce.EventHeld, Held: &safety.Held{Host: "gpu-04", Because: "an operator said so"}}},
			want:   []string{":raised_hand: *Kept back:* `Safety limit exceeded: an operator said so. No action taken against users who are not known on host gpu-04 in this cycle (kept back: 0 terminations, 0 detachments)`"},
		},
		"a message of an operator": {
			events: []enforce.Event{{Kind: controller.EventOperator, ID: "x", Host: "gpu-04", Text: "bob: @channel\nreboot"}},
			want:   []string{":speech_balloon: *Message* on `gpu-04`: `bob: @\u200bchannel reboot`"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var sent oneEvent
			hooks.Sink{Queue: &sent, Now: func() time.Time { return now }}.Consume(&controller.Round{Records: tt.records}, tt.events)
			var got []string
			for _, e := range sent {
				var body map[string]string
				require.NoError(t, json.Unmarshal(e.Chat, &body))
				require.Len(t, body, 1)
				got = append(got, body["text"])
			}
			require.Equal(t, tt.want, got)
		})
	}
}

func TestAChatGetsItsMessage(t *testing.T) {
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		got <- string(body)
		if err != nil || r.Header.Get("Content-Type") != "application/json" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	hook := policy.Hook{Webhook: server.URL, Slack: true, On: []policy.HookEvent{policy.OnWarn}, Timeout: time.Minute}
	require.NoError(t, errors.Join(hooks.SendTest(t.Context(), []policy.Hook{hook}, "bob", time.Now())[0].Err))
	require.JSONEq(t, `{"text": ":information_source: This is a test of genv's notices. Nothing is wrong, and nothing will be done."}`, <-got)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}
