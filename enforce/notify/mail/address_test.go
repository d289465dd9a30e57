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
		"no map, no name":        {"eve", "no mail address is known", func(_ *testing.T, m *policy.Mail) { m.AddressTemplate = nil }, ""},
		"a name with a header":   {"eve\r\nBcc: x@example.org", "the name of the user", nil, ""},
		"a name that is another": {"eve@evil.example,x", "the name of the user", nil, ""},
		"a name like an option":  {"-oQ", "the name of the user", nil, ""},
		"a name with quotes":     {`"a b"`, "the name of the user", nil, ""},
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
