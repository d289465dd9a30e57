package mail_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestAddresses(t *testing.T) {
	for name, tt := range map[string]struct {
		user, says string
		change     func(t *testing.T, m *policy.Mail)
		want       string
	}{
		"the map goes first":     {"alice", "", func(_ *testing.T, m *policy.Mail) { m.Addresses = map[snapshot.Username]string{"alice": "a@b.example"} }, "a@b.example"},
		"the template":           {"alice", "", nil, "alice@example.org"},
		"a command":              {"alice", "", command(`[ "$1" = alice ] && echo a.lice@example.org`), "a.lice@example.org"},
		"unknown to the command": {"alice", "no mail address is known", command(`exit 0`), ""},
		"two lines":              {"alice", "is not a mail address", command(`echo a@example.org; echo b@example.org`), ""},
		"a header":               {"alice", "is not a mail address", command(`printf 'a@example.org\r\nBcc: b@example.org\n'`), ""},
		"a name before it":       {"alice", "is not a mail address", command(`echo 'A <a@example.org>'`), ""},
		"an option":              {"alice", "has characters", command(`echo -- -oQ/tmp@example.org | cut -c4-`), ""},
		"a pipe":                 {"alice", "is not a mail address", command(`echo '|/bin/sh'`), ""},
		"too much":               {"alice", "is not a mail address", command(`yes a@example.org | head -c 1000000`), ""},
		"no map, no name":        {"eve", "no mail address is known", func(_ *testing.T, m *policy.Mail) { m.AddressTemplate = nil }, ""},
		"a name with a header":   {"eve\r\nBcc: x@example.org", "the name of the user", nil, ""},
		"a name that is another": {"eve@evil.example,x", "the name of the user", nil, ""},
		"a name like an option":  {"-oQ", "the name of the user", nil, ""},
		"a name with quotes":     {`"a b"`, "the name of the user", nil, ""},
		"a name for the command": {"$(id)", "the name of the user", command(`echo a@example.org`), ""},
		"a directory's name":     {`CORP\Ann Lee`, "", command(`[ "$1" = 'CORP\Ann Lee' ] && echo a@example.org`), "a@example.org"},
		"an empty name":          {"", "the name of the user", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mailtest.Start(t)
			with := settings(s)
			if tt.change != nil {
				tt.change(t, with)
			}
			o := open(with, nil)
			o.Send(letter(tt.user))
			r := o.wait(t)[0]
			require.Empty(t, o.Close(time.Minute))
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

// command has an address asked for by a program.
func command(text string) func(*testing.T, *policy.Mail) {
	return func(t *testing.T, m *policy.Mail) {
		m.AddressTemplate, m.AddressCommand = nil, []string{script(t, text)}
	}
}
