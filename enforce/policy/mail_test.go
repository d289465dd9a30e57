package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestRefusedMail(t *testing.T) {
	const good = "mail:\n  smtp: mail.example.org:587\n  from: genv@example.org\n  template: \"{{.User}}@example.org\"\n"
	proctest.Try(policy.Parse("p.yaml", []byte(good))).OK(t)
	refused(t, []bad{
		{"empty", "mail: {}", "1:7: mail: write one of `sendmail: /usr/sbin/sendmail` and `smtp: mail.example.org:587`"},
		{"both ways", good + "  sendmail: /usr/sbin/sendmail\n", "write one of `sendmail:"},
		{"no port", "mail:\n  smtp: mail.example.org", `2:9: "mail.example.org" is not a server with its port`},
		{"no such port", "mail:\n  smtp: mail.example.org:99999", `is not a server with its port`},
		{"a program by search", "mail:\n  sendmail: sendmail", `2:13: "sendmail" is not a full path`},
		{"no sender", "mail:\n  sendmail: /x\n  template: \"{{.User}}@x.org\"", "the sender is missing"},
		{"a sender with a header", good + "  reply-to: \"a@b.org, c@d.org\"\n", `5:13: "a@b.org, c@d.org" is not a mail address`},
		{"a sender that is none", "mail:\n  from: genv", `2:9: "genv" is not a sender; write it as genv@example.org or genv <genv@example.org>`},
		{"a password", good + "  password: hunter2\n", `5:3: unknown key "password"`},
		{"a user without a password", good + "  user: genv\n", "`user:` and `password-file:` belong together"},
		{"in the clear", good + "  tls: none\n", "5:8: tls: none sends mail in the clear; write starttls or implicit, or add `allow-plaintext: true`"},
		{
			"a password in the clear", good + "  tls: none\n  allow-plaintext: true\n  user: a\n  password-file: /x\n",
			"5:8: tls: none would send the password in the clear",
		},
		{"tls for a program", "mail:\n  sendmail: /x\n  tls: starttls\n  from: a@b.org\n  template: \"{{.User}}@x.org\"", "are for `smtp:`; remove them"},
		{"no addresses", "mail:\n  sendmail: /x\n  from: a@b.org", "mail: it has no addresses; write `template:"},
		{"a template of nothing", "mail:\n  template: \"{{.Naam}}@example.org\"", `2:13: template: `},
		{
			"a template without users", "mail:\n  template: \"{user}@lab.example\"",
			`template: all users have the address {user}@lab.example; write it as "{{.User}}@example.org"`,
		},
		{"a template that is no address", "mail:\n  template: \"{{.User}}\"", `is not a mail address such as alice@example.org`},
		{"a template cut short", "mail:\n  template: \"{{.User\"", `2:13: template: `},
		{"no address", "mail:\n  addresses: {alice: nowhere}", `2:22: "nowhere" is not a mail address`},
		{"an address like an option", "mail:\n  addresses: {alice: -oQ@example.org}", `"-oQ@example.org" is not a mail address`},
		{"copies to nowhere", "mail:\n  copy-to: [admins]", `2:13: "admins" is not a mail address`},
		{"copies with names", "mail:\n  copy-to: [\"A <a@b.org>\"]", `is not a mail address`},
		{"opt-out of a group", "mail:\n  opt-out: [\"@nobodies\"]", "no such group"},
		{"a digest of seconds", "mail:\n  digest: 5s", "digest: 5s is not from 1m to 7d"},
	})
	for name, more := range map[string]string{
		"in the clear, to itself":       "mail:\n  smtp: 127.0.0.1:25\n  tls: none\n  from: a@b.org\n  addresses: {a: a@b.org}\n",
		"in the clear, if it is wanted": good + "  tls: none\n  allow-plaintext: true\n",
		"by a program":                  "mail: {sendmail: /usr/sbin/sendmail, from: \"A <a@b.org>\", command: [/x]}\n",
	} {
		proctest.Try(policy.Parse("p.yaml", []byte(more))).OK(t, name)
	}
}

// Whom to ask is said once, and mail has it, too.
func TestContact(t *testing.T) {
	const mail = "mail: {smtp: localhost:25, tls: none, from: a@x.example, template: '{{.User}}@x.example'"
	for text, want := range map[string][2]string{
		"contact: room 1\n":                             {"room 1", ""},
		"contact: room 1\n" + mail + "}\n":              {"room 1", "room 1"},
		mail + ", contact: room 2}\n":                   {"room 2", "room 2"},
		mail + ", reply-to: b@x.example}\n":             {"b@x.example", "b@x.example"},
		"contact: room 1\n" + mail + ", contact: me}\n": {"room 1", "me"},
		"tell-users: true\n":                            {},
	} {
		file := parse(t, text)
		require.Equal(t, want[0], file.Fleet().Contact, text)
		if file.Mail != nil {
			require.Equal(t, want[1], file.Mail.Contact, text)
		}
	}
}
