// Package texts makes the texts of notices to users: of mail, of messages on
// terminals, and of messages to a chat. The policy may replace each by a template of
// its own, in the language of text/template.
//
//	set, err := texts.Parse(texts.MailBody, "Hello {{.User}}, …")
//	subject := set.MailSubject(notice, failed)
//
// What a template gets is a Notice. All its texts are safe to show: names and
// commands that users chose are quoted and escaped before a template sees them. If a
// template fails or writes too much, the built-in text is used.
//
// The package sends nothing, and has no clock.
package texts
