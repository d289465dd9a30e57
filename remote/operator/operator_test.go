package operator_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestActions(t *testing.T) {
	for says, rows := range map[string][]string{
		"": {
			`"action":"exempt","user":"bob","hours":4,"reason":"r"`,
			`"action":"exempt","host":"a","device":0,"hours":0.5,"reason":"r"`,
			`"action":"exempt","user":"bob","hours":4,"from":"2026-12-01T00:00:00Z","reason":"r"`,
			`"action":"unexempt","user":"bob"`,
			`"action":"hold","reason":"r"`,
			`"action":"release"`,
		},
		"unknown action": {
			`"reason":"r"`, `"action":"reboot","reason":"r"`, `"action":"terminate","host":"a","reason":"r"`,
			`"action":"detach","host":"a","device":0,"user":"bob","reason":"r"`, `"action":"warn","host":"a","user":"bob","reason":"r"`,
		},
		"needs a reason":         {`"action":"hold"`, `"action":"exempt","user":"bob","hours":1`},
		"no use for hours":       {`"action":"unexempt","user":"bob","hours":1`},
		"no use for from":        {`"action":"unexempt","user":"bob","from":"2026-12-01T00:00:00Z"`},
		"no use for host":        {`"action":"hold","host":"a","reason":"r"`},
		"needs a user or a host": {`"action":"exempt","hours":4,"reason":"r"`, `"action":"unexempt"`},
		"hours":                  {`"action":"exempt","user":"bob","reason":"r"`, `"action":"exempt","user":"bob","hours":721,"reason":"r"`},
		"can't be printed":       {`"action":"hold","reason":"\u001b[2J"`},
		"more than 200":          {`"action":"hold","reason":"` + strings.Repeat("x", 201) + `"`},
		"genv.live.action/1":     {`"schema":"genv.live.action/2","action":"release"`},
		"the reason is empty":    {`"action":"hold","reason":" "`},
		"has at most 256 bytes":  {`"action":"unexempt","user":"` + strings.Repeat("x", 300) + `"`},
		"unknown rule \"a /b\"":  {`"action":"exempt","user":"bob","rule":"a /b","hours":1,"reason":"r"`},
		"GPU is exempted with":   {`"action":"exempt","user":"bob","device":1,"hours":1,"reason":"r"`},
	} {
		for _, row := range rows {
			a := operator.Action{Schema: operator.ActionSchema}
			require.NoError(t, json.Unmarshal([]byte("{"+row+"}"), &a))
			err := a.Check()
			if says == "" {
				require.NoError(t, err, row)
				continue
			}
			var refusal *operator.Refusal
			require.ErrorAs(t, err, &refusal, row)
			require.Equal(t, operator.Invalid, refusal.Code)
			require.ErrorContains(t, err, says, row)
			require.NotEmpty(t, refusal.NextStep)
		}
	}
}

func TestPersons(t *testing.T) {
	alice := snapshot.UID(1000)
	for want, p := range map[string]operator.Author{
		"alice (uid 1000)":          {UID: 1000, Name: "alice"},
		"uid 1000":                  {UID: 1000},
		"root (uid 0)":              {Name: "root"},
		"alice (uid 1000), as root": {Name: "root", Login: &alice, LoginName: "alice"},
		"uid 1000, as uid 0":        {Login: &alice},
	} {
		require.Equal(t, want, p.String())
	}
}

func stateOf(t *testing.T) operator.State {
	t.Helper()
	var s operator.State
	var err error
	for _, a := range []operator.Action{
		{Kind: operator.Exempt, User: "bob", Hours: 4, Reason: "deadline"},
		{Kind: operator.Exempt, Host: "a", Hours: 720, Reason: "being repaired"},
		{Kind: operator.Hold, Reason: "the policy is wrong"},
	} {
		s, _, err = s.After(operator.Author{UID: 1000, Name: "alice"}, &a, noon)
		require.NoError(t, err)
	}
	return s
}

func TestWhatLasts(t *testing.T) {
	s, bob := stateOf(t), operator.Author{UID: 0, Name: "root"}
	require.Equal(t, "alice (uid 1000)", s.Hold.By)
	before := stateOf(t)
	for says, a := range map[string]operator.Action{
		"on hold since":           {Kind: operator.Hold, Reason: "again"},
		"no exemption of host b":  {Kind: operator.Unexempt, Host: "b"},
		"no exemption of user bo": {Kind: operator.Unexempt, User: "bob", Host: "a"},
	} {
		_, _, err := s.After(bob, &a, noon)
		require.ErrorContains(t, err, says)
	}
	next, line, err := s.After(bob, &operator.Action{Kind: operator.Release}, noon)
	require.NoError(t, err)
	require.Equal(t, "root (uid 0) released enforcement (it was on hold by alice (uid 1000): the policy is wrong)", line)
	require.Nil(t, next.Hold)
	_, _, err = next.After(bob, &operator.Action{Kind: operator.Release}, noon)
	require.ErrorContains(t, err, "not on hold")
	next, line, err = next.After(bob, &operator.Action{Kind: operator.Unexempt, User: "bob", Reason: "done"}, noon)
	require.NoError(t, err)
	require.Equal(t, "root (uid 0) ended the exemption of user bob: done (its reason: deadline; made by alice (uid 1000))", line)
	require.Len(t, next.Exemptions, 1)
	require.Equal(t, before, s, "a value")

	later := operator.Action{Kind: operator.Exempt, User: "bob", Hours: 24, From: noon.Add(time.Hour), Reason: "paper"}
	_, _, err = s.After(bob, &later, noon)
	require.ErrorContains(t, err, "user bob is exempt until", "it isn't ended by one that begins later")
	next, line, err = next.After(bob, &later, noon)
	require.NoError(t, err)
	require.Contains(t, line, "root (uid 0) exempted user bob from "+noon.Add(time.Hour).Local().Format(time.DateTime)+" until ")
	require.Equal(t, noon.Add(25*time.Hour), next.Exemptions[1].Until)
}

func TestFile(t *testing.T) {
	s := stateOf(t)
	data := proctest.Try(s.Encode(noon)).OK(t)
	for _, now := range []time.Time{noon, noon.Add(1000 * time.Hour)} {
		got := proctest.Try(operator.Decode(data, now)).OK(t)
		require.Equal(t, s, got)
	}
	got := proctest.Try(operator.Decode(data, noon.Add(-time.Hour))).OK(t)
	require.Equal(t, noon.Add(3*time.Hour), got.Exemptions[0].Until, "the clock was set back while no controller ran: it isn't longer")

	later := noon.Add(90 * time.Second)
	changed := proctest.Try(s.Content(later)).OK(t)
	same := proctest.Try(s.Content(noon)).OK(t)
	require.Equal(t, string(same), string(changed), "so that it isn't written again and again")
}

// Whatever byte is damaged, no exemption becomes longer and a hold doesn't end.
func TestDamage(t *testing.T) {
	data := proctest.Try(stateOf(t).Encode(noon)).OK(t)
	for i := range data {
		for _, bit := range []byte{1, 2, 8, 64} {
			bad := bytes.Clone(data)
			bad[i] ^= bit
			got, err := operator.Decode(bad, noon)
			if err == nil { // JSON doesn't care for the case of keys
				require.Equal(t, stateOf(t), got, string(bad))
			}
		}
		require.Error(t, proctest.Try(operator.Decode(data[:i], noon)).Err)
	}
	for _, text := range []string{"", "null", "{}", "[]", `{"schema":"genv.controller.operator/1"}`} {
		require.Error(t, proctest.Try(operator.Decode([]byte(text), noon)).Err, text)
	}
	require.NotNil(t, operator.Lost(noon).Hold)
}

// A file that is whole, but has what this version doesn't know, is not read in part.
func TestUnknownLimitsOfAnExemption(t *testing.T) {
	s := operator.State{Exemptions: policy.ExemptionList{{Reason: "r", By: "b", Created: noon, Until: noon.Add(time.Hour)}}}
	data := proctest.Try(s.Encode(noon)).OK(t)
	require.ErrorContains(t, proctest.Try(operator.Decode(data, noon)).Err, "needs a user or a host")

	good := proctest.Try(stateOf(t).Encode(noon)).OK(t)
	var file struct {
		Schema string          `json:"schema"`
		Time   time.Time       `json:"time"`
		SHA256 string          `json:"sha256"`
		State  json.RawMessage `json:"state"`
	}
	require.NoError(t, json.Unmarshal(good, &file))
	file.State = json.RawMessage(strings.Replace(string(file.State), `"user":"bob"`, `"user":"bob","weekdays":"Sat"`, 1))
	sum := sha256.Sum256(append([]byte(file.Time.Format(time.RFC3339Nano)+"\n"), file.State...))
	file.SHA256 = hex.EncodeToString(sum[:])
	data = proctest.Try(json.Marshal(file)).OK(t)
	require.ErrorContains(t, proctest.Try(operator.Decode(data, noon)).Err, "weekdays")
}

func TestRefusalsAreErrors(t *testing.T) {
	err := error(operator.Refuse(operator.Busy, "Try again.", "%d wait", 5))
	var refusal *operator.Refusal
	require.True(t, errors.As(err, &refusal))
	require.Equal(t, "5 wait", err.Error())
	for text, next := range map[string]string{
		"5 wait": "5 wait. Try again.", `did you mean "idle"?`: `did you mean "idle"? Try again.`,
	} {
		refusal.Text = text
		require.EqualError(t, operator.WithNextStep(fmt.Errorf("a: %w", err)), "a: "+next)
	}
	refusal.NextStep = ""
	require.Equal(t, err, operator.WithNextStep(err))
}

// What is judged by a policy for one host or user leaves what holds for the others.
func TestThePolicyIsNotChanged(t *testing.T) {
	read := func() *policy.File {
		file, err := policy.Parse("p.yaml", []byte("defaults: {non-env-processes: true, max-devices-per-user: 2, idle: {after: 2h}, max-duration: 7d, guard: enforce}"))
		require.NoError(t, err)
		return file
	}
	file := read()
	created := policy.Exemption{Reason: "r", By: "b", Created: noon, Until: noon.Add(time.Hour)}
	hostsAlice, allOfH1, bobs := created, created, created
	hostsAlice.Who = policy.Who{User: "alice", Host: "h2"}
	allOfH1.Who = policy.Who{Host: "h1"}
	bobs.Who = policy.Who{User: "bob"}
	held := operator.State{Hold: &operator.OnHold{Since: noon, By: "b", Reason: "r"}}
	exempted := operator.State{Exemptions: policy.ExemptionList{hostsAlice, allOfH1, bobs}}
	policies := []enforce.Policy{file, held.Policy(file, noon), exempted.Policy(file, noon), held.Policy(exempted.Policy(file, noon), noon)}
	different := make(map[string]bool)
	for _, host := range []snapshot.Hostname{"", "h1", "h2", "h3"} {
		for _, user := range []snapshot.Username{"", "alice", "bob", "carol", "dan"} {
			q := enforce.Query{Host: host, User: user, At: noon}
			for _, p := range policies {
				different[fmt.Sprintf("%+v", *p.Settings(q))] = true
			}
			require.Equal(t, *read().Settings(q), *file.Settings(q), "%+v", q)
		}
	}
	require.Greater(t, len(different), 6)
}

// Whatever is asked for: what is accepted exempts somebody in particular, and for a time.
func FuzzAction(f *testing.F) {
	for _, seed := range []string{
		`{"schema":"genv.live.action/1","action":"exempt","user":"bob","hours":4,"reason":"r"}`,
		`{"schema":"genv.live.action/1","action":"exempt","host":"a","device":-1,"hours":1e-9,"reason":"\u202e"}`,
		`{"schema":"genv.live.action/1","action":"exempt","user":" ","rule":"idle","hours":720.0000001,"reason":"r"}`,
		`{"schema":"genv.live.action/1","action":"unexempt","user":"bob"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var a operator.Action
		if json.Unmarshal(data, &a) != nil || a.Check() != nil {
			return
		}
		s, _, err := operator.State{}.After(operator.Author{UID: 1}, &a, noon)
		if err != nil {
			return
		}
		for i := range s.Exemptions {
			e := &s.Exemptions[i]
			if err := e.Check(); err != nil || e.User == "" && e.Host == "" || e.Until.After(noon.Add(policy.MaxExemption)) {
				t.Fatal(e, err)
			}
		}
		file, err := s.Encode(noon)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operator.Decode(file, noon.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	})
}
