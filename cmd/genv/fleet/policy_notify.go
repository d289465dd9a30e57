package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/hooks"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func policyTestNotifyCommand(p command.Program) *cli.Command {
	var rules policycheck.RuleFlags
	var to snapshot.Username
	return &cli.Command{
		Name: "test-notify", Category: command.AsAccount,
		Usage:  "send a test by each way of the policy: mail, its copies and hooks; and say what became of it",
		Flags:  []cli.Flag{rules.PolicyFlag(), command.String(&to, "to", "mail this `USER`, whom hooks hear of too")},
		Action: func(c *cli.Context) error { return policyTestNotify(c, &p, &rules, to) },
	}
}

func policyTestNotify(
	c *cli.Context, p *command.Program, rules *policycheck.RuleFlags, user snapshot.Username,
) error {
	switch {
	case user == "":
		return command.UsageError("missing --to: write `genv policy test-notify --to USER`, such as your own name")
	case text.CheckUsername(string(user)) != nil:
		return command.WrongFlag("to", ": %w", text.CheckUsername(string(user)))
	case command.IsPerson(c.Context, p.Getenv):
		return command.UsageError("the controller's account sends notices: %s", command.AskWithSudo)
	}
	file, err := rules.Read(c)
	if err != nil {
		return err
	}
	if file.Mail == nil && len(file.Hooks) == 0 {
		return command.UsageError("nothing was sent: the policy has neither `mail:` nor `hooks:`; docs/policy.md " +
			"describes them")
	}
	tests := append(testMail(c, p, file, user), hookTests(hooks.SendTest(c.Context, file.Hooks, user, p.Now()))...)
	return writeNoticeTests(p, tests)
}

// noticeTest is what became of a test.
type noticeTest struct {
	kind, to string
	done     string // what was done; empty if it failed
	err      error
	next     string // after an error; empty for none
}

// testMail sends a mail and its copies, unless the user gets none.
func testMail(c *cli.Context, p *command.Program, file *policy.File, user snapshot.Username) (tests []noticeTest) {
	if file.Mail == nil {
		return nil
	}
	results := []mail.Letter{{Err: mail.ErrOptedOut}}
	if !file.Mail.OptedOut(user) {
		results = (&mail.Sender{Settings: file.Mail, Now: p.Now}).SendTest(c.Context, user)
	}
	kind := "mail"
	for _, r := range results {
		tests = append(tests, noticeTest{
			kind: kind, to: cmp.Or(r.To, string(user)), done: file.Mail.SMTP + file.Mail.Sendmail +
				" has taken it", err: r.Err, next: mail.NextStep(r.Err),
		})
		kind = "copy"
	}
	for _, to := range file.Mail.CopyTo[len(results)-1:] {
		tests = append(tests, noticeTest{kind: kind, to: to, err: errors.New("not sent: there is no mail to copy")})
	}
	return tests
}

func hookTests(results []hooks.Post) (tests []noticeTest) {
	for _, r := range results {
		t := noticeTest{
			kind: "command", to: r.To, done: "exit status 0", err: r.Err,
			next: "run it yourself as the controller's account, and read its log",
		}
		if r.Webhook {
			t.kind, t.done, t.next = "webhook", "the server has taken it", "check the address in the policy, and the log "+
				"of that server"
		}
		tests = append(tests, t)
	}
	return tests
}

// writeNoticeTests prints what became of tests, with the next steps, and fails if one failed.
func writeNoticeTests(p *command.Program, tests []noticeTest) error {
	table := render.Output{Format: "tui"}.Table(render.Col("KIND", 9), render.Col("TO", 0), render.Col("RESULT", 0))
	failed := 0
	for _, t := range tests {
		result := t.done
		if t.err != nil {
			failed++
			if result = text.OneLine(t.err.Error()); !strings.HasPrefix(result, "not sent: ") {
				result = "failed: " + result
			}
		}
		table.Add(t.kind, text.OneLine(t.to), result)
	}
	if err := table.Write(p.Out); err != nil || failed == 0 {
		return err
	}
	for _, t := range tests {
		if t.err != nil && t.next != "" {
			p.Warn(fmt.Sprintf("%s to %s: next: %s", t.kind, text.OneLine(t.to), t.next))
		}
	}
	return &command.ExitError{Code: command.ExitFailed, Err: fmt.Errorf("%d of %s did not succeed", failed,
		text.Plural(len(tests), "test"))}
}
