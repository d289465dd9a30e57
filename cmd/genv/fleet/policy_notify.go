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
	"github.com/seed-3119e985/genv/enforce/audit"
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
	table := render.Output{Format: "tui"}.Table("KIND:9", "TO", "RESULT")
	failed, next := 0, []string(nil)
	add := func(kind, to, done string, err error, step string) {
		to = text.OneLine(to)
		if err != nil {
			failed++
			if done = text.OneLine(err.Error()); !strings.HasPrefix(done, "not sent: ") {
				done = "failed: " + done
			}
			if step != "" {
				next = append(next, fmt.Sprintf("%s to %s: next: %s", kind, to, step))
			}
		}
		table.Add(kind, to, done)
	}
	testMail(c, p, file, user, add)
	for _, r := range hooks.SendTest(c.Context, file.Hooks, user, p.Now()) {
		done, step := "exit status 0", "run it yourself as the controller's account, and read its log"
		if r.Channel == audit.ChannelWebhook {
			done, step = "the server has taken it", "check the address in the policy, and the log of that server"
		}
		add(string(r.Channel), r.To, done, r.Err, step)
	}
	if err := table.Write(p.Out); err != nil || failed == 0 {
		return err
	}
	p.Warn(next...)
	return &command.ExitError{Code: command.ExitFailed, Err: fmt.Errorf("%d of %s did not succeed", failed,
		text.Plural(table.Len(), "test"))}
}

func testMail(
	c *cli.Context, p *command.Program, file *policy.File, user snapshot.Username,
	add func(kind, to, done string, err error, step string),
) {
	if file.Mail == nil {
		return
	}
	results := mail.SendTest(c.Context, file.Mail, user, p.Now())
	kind := "mail"
	for _, r := range results {
		done := file.Mail.SMTP + file.Mail.Sendmail + " has taken it"
		add(kind, cmp.Or(r.To, string(user)), done, r.Err, mail.NextStep(r.Err))
		kind = "copy"
	}
	for _, to := range file.Mail.CopyTo[len(results)-1:] {
		add(kind, to, "", errors.New("not sent: there is no mail to copy"), "")
	}
}
