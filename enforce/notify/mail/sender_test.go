package mail_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

// sentTo are the recipients of the mails that a server took.
func sentTo(s *mailtest.Server) (to []string) {
	for _, m := range s.Mails() {
		to = append(to, m.To)
	}
	return to
}

// Administrators get what the user got, and nothing about a user who got nothing.
func TestCopies(t *testing.T) {
	for name, tt := range map[string]struct {
		command, answer string
		copyTo          []string
		took            []string
		fails           string
	}{
		"both are accepted":         {"", "", []string{"admins@example.org"}, []string{"alice@example.org", "admins@example.org"}, ""},
		"no copies":                 {"", "", nil, []string{"alice@example.org"}, ""},
		"the user is administrator": {"", "", []string{"Alice@example.org"}, []string{"alice@example.org"}, ""},
		"the user is refused":       {"RCPT alice@example.org", "550 no such user", []string{"admins@example.org"}, nil, `SERVER: sending SMTP RCPT TO command: 550 "no such user"`},
		"the copy is refused": {
			"RCPT admins@example.org", "550 no such user",
			[]string{"admins@example.org", "boss@example.org"},
			[]string{"alice@example.org", "boss@example.org"},
			`SERVER: sending SMTP RCPT TO command: 550 "no such user"`,
		},
		"the copy has to wait, and the run ends": {
			"RCPT admins@example.org", "451 later",
			[]string{"admins@example.org"},
			[]string{"alice@example.org"},
			"the mail server didn't take it before the run, or `mail:` of the policy, ended",
		},
		"a reload removes the address": {"RCPT admins@example.org", "451 later", []string{"admins@example.org"}, []string{"alice@example.org"}, "not sent: the policy doesn't list the address under `copy-to` any more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mailtest.Start(t)
			s.Answer(tt.command, tt.answer)
			with := settings(s)
			with.CopyTo = tt.copyTo
			o := open(with, time.Hour, 0)
			o.send(t, "alice")
			if strings.HasPrefix(name, "a reload") {
				o.wait(t, 1)
				o.Configure(settings(s), func() error { return nil })
				o.wait(t, 2)
			}
			require.Empty(t, o.end(time.Minute))
			require.Empty(t, o.results[0].CopyTo)
			require.ElementsMatch(t, tt.took, sentTo(s))
			fails := ""
			for _, r := range o.results {
				if r.Err != nil {
					fails += strings.ReplaceAll(r.Err.Error(), s.Address, "SERVER")
				}
			}
			require.Equal(t, tt.fails, fails)
			for _, m := range s.Mails() {
				require.Equal(t, s.Mails()[0].Data, m.Data)
				require.Contains(t, m.Data, "To: <alice@example.org>", "so that it is seen whose mail it is")
			}
		})
	}
}

// An address at which the server hangs costs users nothing, and other copies neither.
func TestABrokenCopyAddressDelaysNoMail(t *testing.T) {
	t.Parallel()
	s := mailtest.Start(t)
	s.Answer("RCPT admins@example.org", "hang")
	with := settings(s)
	with.CopyTo, with.Timeout = []string{"admins@example.org", "boss@example.org"}, time.Hour
	o := open(with, 0, 0)
	o.send(t, "alice", "carol", "dave")
	require.Eventually(t, func() bool { return len(s.Mails()) == 6 }, time.Minute, time.Millisecond)
	require.Empty(t, o.end(100*time.Millisecond))
	require.Len(t, o.results, 9)
	for _, r := range o.results {
		require.Equal(t, r.CopyTo == "admins@example.org", r.Err != nil)
		require.True(t, r.CopyTo == "" || r.CopyTo == r.To, "%s was not sent to %s", r.CopyTo, r.To)
	}
}

// A test says that it is one, and is sent once.
func TestSendTest(t *testing.T) {
	t.Parallel()
	s := mailtest.Start(t)
	with := settings(s)
	with.CopyTo = []string{"admins@example.org"}
	results := mail.SendTest(t.Context(), with, "alice", time.Now())
	require.Len(t, results, 2)
	require.NoError(t, results[0].Err)
	require.Equal(t, "admins@example.org", results[1].To)
	require.Equal(t, []string{"alice@example.org", "admins@example.org"}, sentTo(s))
	m, body := decoded(t, s.Mails()[1].Data)
	require.Regexp(t, `^\[test\] \[genv\] `, m.Header.Get("Subject"))
	require.Contains(t, strings.ReplaceAll(body, "\r\n", "\n"), "\n* "+notify.TestText+"\n")

	s.AnswerOnce("RCPT", "451 later")
	results = mail.SendTest(t.Context(), with, "alice", time.Now())
	require.Len(t, results, 1, "it isn't tried again, and there is no copy of it")
	require.ErrorContains(t, results[0].Err, `451 "later"`)
	require.Contains(t, mail.NextStep(results[0].Err), "try again later")
}

// What the limits keep back at the end is in the record.
func TestWhatWaitsForTheNextHourAtTheEnd(t *testing.T) {
	s := mailtest.Start(t)
	with := settings(s)
	with.InAll = 1
	o := open(with, 0, 0)
	o.send(t, "alice", "bob")
	require.Empty(t, o.end(time.Minute))
	require.Len(t, o.results, 2)
	require.Len(t, s.Mails(), 1)
	require.ErrorIs(t, errors.Join(o.results[0].Err, o.results[1].Err), mail.ErrNoRoom)
}

// One user with a full mailbox, or at whose name the server drops each connection, delays no other.
func TestOneThatFailsDelaysNoOther(t *testing.T) {
	for answer, pause := range map[string]time.Duration{"452 mailbox full": time.Hour, "drop": 10 * time.Millisecond} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			s := mailtest.Start(t)
			s.Answer("RCPT alice@example.org", answer)
			o := open(settings(s), pause, 0)
			o.send(t, "alice")
			tried := func() bool { return slices.Contains(s.Commands(), "tls RCPT TO:<alice@example.org>") }
			require.Eventually(t, tried, time.Minute, time.Millisecond)
			o.send(t, "bob", "carol")
			require.Eventually(t, func() bool { return len(s.Mails()) == 2 }, time.Minute, time.Millisecond)
			require.Equal(t, []string{"alice"}, o.end(time.Minute))
		})
	}
}

// A server that fails, or refuses the login, isn't asked for each letter, not even before it is given up.
func TestAServerThatFailsIsAskedOnce(t *testing.T) {
	t.Parallel()
	s := mailtest.Start(t)
	s.Answer("EHLO", "421 not now")
	o := open(settings(s), time.Hour, 2*time.Second)
	o.send(t, strings.Split("abcdefghij", "")...)
	o.wait(t, 10)
	require.Empty(t, o.end(time.Minute))
	for _, r := range o.results {
		require.ErrorContains(t, r.Err, "given up after ")
		require.ErrorContains(t, r.Err, "421")
	}
	require.Len(t, s.Commands(), 2, "EHLO and HELO")
	require.Len(t, o.warned, 1)
}

func TestAddresses(t *testing.T) {
	for name, tt := range map[string]struct {
		user, says string
		change     func(m *policy.Mail)
		want       string
	}{
		"the map goes first":     {"alice", "", func(m *policy.Mail) { m.Addresses = map[snapshot.Username]string{"alice": "a@b.example"} }, "a@b.example"},
		"the template":           {"alice", "", nil, "alice@example.org"},
		"no map, no name":        {"eve", "no mail address is known", func(m *policy.Mail) { m.AddressTemplate = nil }, ""},
		"a name with a header":   {"eve\r\nBcc: x@example.org", "the name of the user", nil, ""},
		"a name that is another": {"eve@evil.example,x", "the name of the user", nil, ""},
		"a name like an option":  {"-oQ", "the name of the user", nil, ""},
		"a name with quotes":     {`"a b"`, "the name of the user", nil, ""},
		"an empty name":          {"", "the name of this user", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			with := settings(&mailtest.Server{})
			if tt.change != nil {
				tt.change(with)
			}
			address, err := with.Address(snapshot.Username(tt.user))
			require.Equal(t, tt.want, address)
			if tt.says != "" {
				require.ErrorContains(t, err, tt.says)
			} else {
				require.NoError(t, err)
			}
		})
	}
}
