package mail_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
)

func TestDroppedLettersAreCounted(t *testing.T) {
	s := mailtest.Start(t)
	s.Answer("RCPT", "hang")
	with := settings(s)
	with.Timeout = time.Hour
	o := open(with, nil)
	for range 1100 {
		o.Send(letter("alice"))
	}
	require.NotEmpty(t, o.wait(t))
	require.ErrorContains(t, o.results[0].Err, "it was dropped")
	require.Len(t, o.Close(time.Millisecond), 1000)
}

// Nothing is sent by a controller that may not act any more.
func TestMailOfAControllerThatDoesNotLead(t *testing.T) {
	s := mailtest.Start(t)
	o := open(settings(s), func(o *mail.Sender) { o.MayBegin = func() error { return errors.New("doesn't lead any more") } })
	o.Send(letter("alice"))
	require.ErrorContains(t, o.wait(t)[0].Err, "doesn't lead any more")
	require.Empty(t, o.Close(time.Minute))
	require.Empty(t, s.Commands())
}

// One user with a full mailbox delays no other.
func TestOneRefusalDelaysNoOther(t *testing.T) {
	s := mailtest.Start(t)
	s.AnswerOnce("RCPT", "452 mailbox full")
	o := open(settings(s), func(o *mail.Sender) { o.Pause = time.Hour })
	o.Send(letter("alice"))
	o.Send(letter("bob"))
	r := o.wait(t)[0]
	require.NoError(t, r.Err)
	require.Equal(t, "bob", string(r.User))
	require.Len(t, o.Close(time.Minute), 1)
}
