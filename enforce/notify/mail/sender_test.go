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
		warns           string
	}{
		"both are accepted":         {"", "", []string{"admins@example.org"}, []string{"alice@example.org", "admins@example.org"}, ""},
		"no copies":                 {"", "", nil, []string{"alice@example.org"}, ""},
		"the user is administrator": {"", "", []string{"Alice@example.org"}, []string{"alice@example.org"}, ""},
		"the user is refused":       {"RCPT alice@example.org", "550 no such user", []string{"admins@example.org"}, nil, ""},
		"the copy is refused": {
			"RCPT admins@example.org", "550 no such user",
			[]string{"admins@example.org", "boss@example.org"},
			[]string{"alice@example.org", "boss@example.org"},
			`the copy to admins@example.org of a mail to alice was not sent: SERVER: sending SMTP RCPT TO command: 550 "no such user"`,
		},
		"the copy has to wait, and the run ends": {
			"RCPT admins@example.org", "451 later",
			[]string{"admins@example.org"},
			[]string{"alice@example.org"},
			"the copy to admins@example.org of a mail to alice was not sent: the run ended before the mail server took it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mailtest.Start(t)
			s.Answer(tt.command, tt.answer)
			with := settings(s)
			with.CopyTo = tt.copyTo
			o := open(with, func(o *mail.Sender) { o.Pause = time.Hour })
			o.Send(letter("alice"))
			require.Empty(t, o.Close(time.Minute))
			require.Len(t, o.results, 1, "the record has the user's alone")
			require.ElementsMatch(t, tt.took, sentTo(s))
			require.Equal(t, strings.ReplaceAll(tt.warns, "SERVER", s.Address), strings.Join(o.warned, "\n"))
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
	o := open(with, nil)
	for _, user := range []string{"alice", "carol", "dave"} {
		o.Send(letter(user))
	}
	require.Eventually(t, func() bool { return len(s.Mails()) == 6 }, time.Minute, time.Millisecond)
	require.Empty(t, o.Close(100*time.Millisecond))
	require.Len(t, o.results, 3)
	require.Len(t, o.warned, 3, "of each copy that was lost")
}

// A test says that it is one, and is sent once.
func TestSendTest(t *testing.T) {
	t.Parallel()
	s := mailtest.Start(t)
	with := settings(s)
	with.CopyTo = []string{"admins@example.org"}
	sender := mail.Sender{Settings: with, Now: time.Now}
	results := sender.SendTest(t.Context(), "alice")
	require.Len(t, results, 2)
	require.NoError(t, results[0].Err)
	require.Equal(t, "admins@example.org", results[1].To)
	require.Equal(t, []string{"alice@example.org", "admins@example.org"}, sentTo(s))
	m, body := decoded(t, s.Mails()[1].Data)
	require.Regexp(t, `^\[test\] \[genv\] `, m.Header.Get("Subject"))
	require.Contains(t, strings.ReplaceAll(body, "\r\n", "\n"), "\n* "+notify.TestText+"\n")

	s.AnswerOnce("RCPT", "451 later")
	results = sender.SendTest(t.Context(), "alice")
	require.Len(t, results, 1, "it isn't tried again, and there is no copy of it")
	require.ErrorContains(t, results[0].Err, `451 "later"`)
	require.Contains(t, mail.NextStep(results[0].Err), "try again later")
}

// Nothing is sent by a controller that may not act any more.
func TestMailOfAControllerThatDoesNotLead(t *testing.T) {
	s := mailtest.Start(t)
	r := sendOne(t, settings(s), "alice", func(o *mail.Sender) { o.MayBegin = func() error { return errors.New("doesn't lead any more") } })
	require.ErrorContains(t, r.Err, "doesn't lead any more")
	require.Empty(t, s.Commands())
}

// What the limits keep back at the end is in the record.
func TestWhatWaitsForTheNextHourAtTheEnd(t *testing.T) {
	s := mailtest.Start(t)
	with := settings(s)
	with.InAll = 1
	o := open(with, nil)
	for _, user := range []string{"alice", "bob"} {
		require.NoError(t, o.Add(&letter(user).Items[0], "run", 7))
	}
	require.Empty(t, o.Close(time.Minute))
	require.Len(t, o.results, 2)
	require.NoError(t, o.results[0].Err)
	require.ErrorIs(t, o.results[1].Err, mail.ErrNoRoom)
}

// One user with a full mailbox delays no other.
func TestOneRefusalDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := mailtest.Start(t)
	s.AnswerOnce("RCPT", "452 mailbox full")
	o := open(settings(s), func(o *mail.Sender) { o.Pause = time.Hour })
	o.Send(letter("alice"))
	refused := func() bool { return slices.Contains(s.Commands(), "tls RCPT TO:<alice@example.org>") }
	require.Eventually(t, refused, time.Minute, time.Millisecond)
	o.Send(letter("bob"))
	r := o.wait(t)[0]
	require.NoError(t, r.Err)
	require.Equal(t, "bob", string(r.User))
	require.Len(t, o.Close(time.Minute), 1)
}

// One at which the server drops each connection is behind the others.
func TestOneThatNeverSucceedsDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := mailtest.Start(t)
	s.Answer("RCPT alice@example.org", "drop")
	o := open(settings(s), nil)
	for _, user := range []string{"alice", "bob", "carol"} {
		o.Send(letter(user))
	}
	require.Eventually(t, func() bool { return len(s.Mails()) == 2 }, time.Minute, time.Millisecond)
	require.Len(t, o.Close(time.Minute), 1)
}

// A server that fails, or refuses the login, isn't asked for each letter, not even before it is given up.
func TestAServerThatFailsIsAskedOnce(t *testing.T) {
	t.Parallel()
	s := mailtest.Start(t)
	s.Answer("EHLO", "421 not now")
	o := open(settings(s), func(o *mail.Sender) { o.Pause, o.GiveUp = time.Hour, 2*time.Second })
	for range 10 {
		o.Send(letter("alice"))
	}
	require.ErrorContains(t, o.wait(t)[0].Err, "given up after ")
	require.Empty(t, o.Close(time.Minute))
	require.Len(t, o.results, 10)
	require.Len(t, s.Commands(), 2, "EHLO and HELO")
	require.Len(t, o.warned, 1)
}

func TestAddresses(t *testing.T) {
	for name, tt := range map[string]struct {
		user, says string
		change     func(t *testing.T, m *policy.Mail)
		want       string
	}{
		"the map goes first":     {"alice", "", func(_ *testing.T, m *policy.Mail) { m.Addresses = map[snapshot.Username]string{"alice": "a@b.example"} }, "a@b.example"},
		"the template":           {"alice", "", nil, "alice@example.org"},
		"no map, no name":        {"eve", "no mail address is known", func(_ *testing.T, m *policy.Mail) { m.AddressTemplate = nil }, ""},
		"a name with a header":   {"eve\r\nBcc: x@example.org", "the name of the user", nil, ""},
		"a name that is another": {"eve@evil.example,x", "the name of the user", nil, ""},
		"a name like an option":  {"-oQ", "the name of the user", nil, ""},
		"a name with quotes":     {`"a b"`, "the name of the user", nil, ""},
		"an empty name":          {"", "the name of this user", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mailtest.Start(t)
			with := settings(s)
			if tt.change != nil {
				tt.change(t, with)
			}
			r := sendOne(t, with, tt.user, nil)
			require.Equal(t, tt.want, r.To)
			if tt.says != "" {
				require.ErrorContains(t, r.Err, tt.says)
				require.Empty(t, s.Mails())
				return
			}
			require.NoError(t, r.Err)
			require.Len(t, s.Mails(), 1)
		})
	}
}
