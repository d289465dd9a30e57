package mail_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io"
	"math/big"
	"mime/quotedprintable"
	netmail "net/mail"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// settings are those of a policy whose server is the one of the test.
func settings(s *mailtest.Server) *policy.Mail {
	return &policy.Mail{
		SMTP: s.Address, TLS: policy.StartTLS, CAFile: s.CAFile, Sender: netmail.Address{Name: "GPU admins", Address: "genv@example.org"},
		ReplyTo: "help@example.org", Contact: "help@example.org", AddressTemplate: template.Must(template.New("").Parse("{{.User}}@example.org")), Timeout: 10 * time.Second,
		Digest: time.Hour, PerUser: 4, InAll: 100,
	}
}

// outbox is a Sender with its results and warnings.
type outbox struct {
	*mail.Sender
	mu      sync.Mutex
	results []mail.Letter
	warned  []string
}

func open(settings *policy.Mail, pause, giveUp time.Duration) *outbox {
	o := &outbox{}
	o.Sender = &mail.Sender{
		Now: time.Now, Pause: pause, GiveUp: giveUp,
		Done: func(r mail.Letter) { o.mu.Lock(); defer o.mu.Unlock(); o.results = append(o.results, r) },
		Warn: func(err error) { o.mu.Lock(); defer o.mu.Unlock(); o.warned = append(o.warned, err.Error()) },
	}
	o.Start(settings, func() error { return nil })
	return o
}

// send has letters sent to users.
func (o *outbox) send(t *testing.T, users ...string) {
	t.Helper()
	for _, user := range users {
		require.NoError(t, o.Add(&notify.UserMessage{
			User: snapshot.Username(user), ID: "id-" + user, Host: "gpu-01", Rule: "non-env-processes", Line: "Process 4242 is not running in a GPU environment.",
			Command: notify.QuotedCommand("python train.py --name Jörg"), Follows: "process 4242 will be ended", Pending: true, Due: time.Now().Add(10 * time.Minute),
			Since: time.Now(), At: time.Now().Add(-policy.MailGather), Advice: "Start GPU work in an environment.",
		}, "run", 7))
	}
}

// end ends the Sender, and returns the users whose mail was not sent by then.
func (o *outbox) end(within time.Duration) (unsent []string) {
	o.Close(within)
	for _, r := range o.results {
		if r.Err != nil && r.CopyTo == "" && strings.HasPrefix(r.Err.Error(), "the mail server didn't take it before") {
			unsent = append(unsent, string(r.User))
		}
	}
	slices.Sort(unsent)
	return unsent
}

// wait waits for results.
func (o *outbox) wait(t *testing.T, results int) {
	t.Helper()
	require.Eventually(t, func() bool { o.mu.Lock(); defer o.mu.Unlock(); return len(o.results) >= results }, time.Minute, time.Millisecond)
}

// sendOne sends a letter to a user, and returns its only result.
func sendOne(t *testing.T, settings *policy.Mail, giveUp time.Duration) mail.Letter {
	t.Helper()
	o := open(settings, 10*time.Millisecond, giveUp)
	o.send(t, "alice")
	o.wait(t, 1)
	require.Empty(t, o.end(time.Minute))
	require.Len(t, o.results, 1)
	return o.results[0]
}

// decoded is a mail as its reader sees it.
func decoded(t *testing.T, data string) (*netmail.Message, string) {
	t.Helper()
	m := proctest.Try(netmail.ReadMessage(strings.NewReader(data))).OK(t)
	body := proctest.Try(io.ReadAll(quotedprintable.NewReader(m.Body))).OK(t)
	return m, string(body)
}

func TestAMailHasTheEvidence(t *testing.T) {
	s := mailtest.Start(t, mailtest.Auth("PLAIN LOGIN"))
	r := sendOne(t, settings(s), 0)
	require.NoError(t, r.Err)
	require.Equal(t, "alice@example.org", r.To)
	mails := s.Mails()
	require.Len(t, mails, 1)
	require.True(t, mails[0].TLS)
	require.Equal(t, "genv@example.org", mails[0].From)
	require.Equal(t, "alice@example.org", mails[0].To)
	m, body := decoded(t, mails[0].Data)
	require.Equal(t, `"GPU admins" <genv@example.org>`, m.Header.Get("From"))
	require.Equal(t, "<help@example.org>", m.Header.Get("Reply-To"))
	require.Equal(t, "auto-generated", m.Header.Get("Auto-Submitted"))
	require.Equal(t, "text/plain; charset=UTF-8", m.Header.Get("Content-Type"))
	require.Regexp(t, `^<genv\.[a-z0-9]+@example\.org>$`, m.Header.Get("Message-ID"))
	proctest.Try(m.Header.Date()).OK(t)
	require.Contains(t, m.Header.Get("Subject"), "gpu-01")
	for _, part := range []string{
		"Hello alice,", "gpu-01: Process 4242 is not running in a GPU environment.", `"python train.py --name Jörg"`, "process 4242 will be ended",
		"Start GPU work in an environment.", "Questions: help@example.org",
	} {
		require.Contains(t, body, part)
	}
	for line := range strings.Lines(mails[0].Data) {
		require.True(t, strings.HasSuffix(line, "\r\n"), line)
		require.LessOrEqual(t, len(line), 998+2)
	}
}

// password writes a file that holds a password.
func password(t *testing.T, mode os.FileMode) string {
	path := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(path, []byte("s3cret\n"), mode))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

func TestLogins(t *testing.T) {
	plain := "PLAIN " + base64.StdEncoding.EncodeToString([]byte("\x00genv\x00s3cret"))
	login := "LOGIN " + base64.StdEncoding.EncodeToString([]byte("genv")) + " " + base64.StdEncoding.EncodeToString([]byte("s3cret"))
	for name, tt := range map[string]struct {
		options []mailtest.Option
		tls     policy.TLS
		want    string
	}{
		"PLAIN under STARTTLS":    {[]mailtest.Option{mailtest.Auth("PLAIN LOGIN")}, policy.StartTLS, plain},
		"LOGIN alone":             {[]mailtest.Option{mailtest.Auth("NTLM LOGIN")}, policy.StartTLS, login},
		"implicit TLS":            {[]mailtest.Option{mailtest.Auth("PLAIN"), mailtest.Implicit}, policy.Implicit, plain},
		"in the clear, to itself": {[]mailtest.Option{mailtest.Auth("PLAIN"), mailtest.WithoutTLS}, policy.NoTLS, plain},
	} {
		t.Run(name, func(t *testing.T) {
			s := mailtest.Start(t, tt.options...)
			with := settings(s)
			with.TLS, with.User, with.PasswordFile = tt.tls, "genv", password(t, 0o600)
			require.NoError(t, sendOne(t, with, 0).Err)
			require.Equal(t, []string{tt.want}, s.Logins())
			require.Len(t, s.Mails(), 1)
		})
	}
}

// fifo is one that is never written to.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	return path
}

// otherAuthority is a file with a certificate that nothing has.
func otherAuthority(t *testing.T) string {
	t.Helper()
	key := proctest.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).OK(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	certificate := proctest.Try(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)).OK(t)
	path := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600))
	return path
}

// Neither a password nor a mail leaves unless the connection is encrypted as the policy wants it; the mail waits.
func TestNothingLeavesInTheClear(t *testing.T) {
	for name, tt := range map[string]struct {
		options []mailtest.Option
		change  func(*policy.Mail, *mailtest.Server)
		says    string
	}{
		"no STARTTLS offered":   {[]mailtest.Option{mailtest.WithoutTLS}, nil, "does not support STARTTLS"},
		"STARTTLS refused":      {nil, func(_ *policy.Mail, s *mailtest.Server) { s.Answer("STARTTLS", "454 not now") }, "454"},
		"the wrong certificate": {nil, func(m *policy.Mail, _ *mailtest.Server) { m.CAFile = otherAuthority(t) }, "certificate"},
		"an unknown authority":  {nil, func(m *policy.Mail, _ *mailtest.Server) { m.CAFile = "" }, "certificate"},
		"another name": {nil, func(m *policy.Mail, _ *mailtest.Server) {
			m.SMTP = strings.Replace(m.SMTP, "127.0.0.1", "localhost", 1)
		}, "certificate"},
		"a file others may read":  {nil, func(m *policy.Mail, _ *mailtest.Server) { m.PasswordFile = password(t, 0o644) }, "0644"},
		"a FIFO of authorities":   {nil, func(m *policy.Mail, _ *mailtest.Server) { m.CAFile = fifo(t) }, "not a regular file"},
		"a FIFO with a password":  {nil, func(m *policy.Mail, _ *mailtest.Server) { m.PasswordFile = fifo(t) }, "not a regular file"},
		"no such file":            {nil, func(m *policy.Mail, _ *mailtest.Server) { m.PasswordFile = "/no/such/file" }, "no such file"},
		"implicit TLS to a plain": {[]mailtest.Option{mailtest.WithoutTLS}, func(m *policy.Mail, _ *mailtest.Server) { m.TLS = policy.Implicit }, "tls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mailtest.Start(t, append(tt.options, mailtest.Auth("PLAIN LOGIN"))...)
			with := settings(s)
			with.User, with.PasswordFile = "genv", password(t, 0o600)
			if tt.change != nil {
				tt.change(with, s)
			}
			o := open(with, time.Hour, 0)
			o.send(t, "alice")
			require.Len(t, o.end(time.Minute), 1, "it waits until the end")
			require.Len(t, o.warned, 1)
			require.Contains(t, o.warned[0], tt.says)
			require.Empty(t, s.Mails())
			require.Empty(t, s.Logins())
			require.NotRegexp(t, "alice|AUTH", strings.Join(s.Commands(), "\n"))
		})
	}
}

func TestWhatIsTriedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		command, answer string
		mails           int
		fails           string
	}{
		"greylisting":                 {"RCPT", "451 come later", 1, ""},
		"an unknown user":             {"RCPT", "550 no such user <x>\x1b[2J", 0, "550"},
		"a full disk":                 {"DATA", "452 disk full", 1, ""},
		"spam":                        {"END", "554 spam", 0, `554 "spam"`},
		"not now":                     {"END", "451 later", 1, ""},
		"the sender is refused":       {"MAIL", "550 who?", 0, "550"},
		"the connection drops":        {"MAIL", "drop", 1, ""},
		"before the greeting":         {"EHLO", "drop", 1, ""},
		"after the mail":              {"END", "drop", 1, "may have arrived"},
		"before the mail":             {"NOOP", "drop", 1, ""},
		"right after the mail":        {"RSET", "drop", 1, ""},
		"the server doesn't say bye":  {"QUIT", "drop", 1, ""},
		"no answer":                   {"RCPT", "hang", 1, ""},
		"the server is about to stop": {"EHLO", "421 shutting down", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mailtest.Start(t)
			s.AnswerOnce(tt.command, tt.answer)
			with := settings(s)
			if tt.answer == "hang" {
				with.Timeout = time.Second
			}
			r := sendOne(t, with, 0)
			if tt.fails == "" {
				require.NoError(t, r.Err)
			} else {
				require.ErrorContains(t, r.Err, tt.fails)
				require.NotContains(t, r.Err.Error(), "\x1b")
			}
			require.Len(t, s.Mails(), tt.mails, "never twice")
		})
	}
}

// Wherever a server hangs, it is said in plain words.
func TestWhereAServerHangs(t *testing.T) {
	for _, command := range []string{"", "EHLO", "STARTTLS", "MAIL", "RCPT", "DATA", "END"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			s := mailtest.Start(t)
			s.Answer(command, "hang")
			with := settings(s)
			with.Timeout = 300 * time.Millisecond
			r := mail.SendTest(t.Context(), with, "alice", time.Now())[0]
			require.ErrorContains(t, r.Err, "no answer within 300ms")
			require.NotRegexp(t, "deadline|timeout", r.Err.Error())
		})
	}
}

func TestTheEndDoesNotWaitForAServerThatHangs(t *testing.T) {
	s := mailtest.Start(t)
	s.Answer("RCPT", "hang")
	with := settings(s)
	with.Timeout = time.Hour
	o := open(with, 0, 0)
	o.send(t, "alice", "bob")
	begun := time.Now()
	require.Equal(t, []string{"alice", "bob"}, o.end(100*time.Millisecond))
	require.Less(t, time.Since(begun), 30*time.Second)
}

func TestGivenUpAfterATime(t *testing.T) {
	s := mailtest.Start(t)
	s.Answer("RCPT", "451 never")
	r := sendOne(t, settings(s), time.Nanosecond)
	require.ErrorContains(t, r.Err, "given up after ")
}

// script is a program that does what the shell text says.
func script(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, proctest.WriteProgram(path, []byte("#!/bin/sh\n"+text)))
	return path
}

func TestSendmail(t *testing.T) {
	for name, tt := range map[string]struct {
		text, fails string
		unsent      int
	}{
		"it takes the mail":     {"echo \"$@\" > $0.args; cat > $0.mail", "", 0},
		"it refuses it":         {"echo 'no such user' >&2; exit 67", "exit status 67: no such user", 0},
		"it leaves a child":     {"echo \"$@\" > $0.args; cat > $0.mail; sleep 5 & echo $! > $0.child", "", 0},
		"it has no room now":    {"exit 75", "", 1},
		"it has no memory now":  {"exit 71", "", 1},
		"it isn't there":        {"", "", 1},
		"it hangs":              {"sleep 100 & exec sleep 100", "not sent again", 0},
		"it reads nothing":      {"echo \"$@\" > $0.args; exec true > $0.mail", "", 0},
		"it prints a lot first": {"echo \"$@\" > $0.args; yes | head -c 1000000; cat > $0.mail", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := script(t, tt.text)
			if tt.text == "" {
				program = "/no/such/program"
			}
			with := settings(&mailtest.Server{})
			with.SMTP, with.Sendmail = "", program
			if name == "it hangs" {
				with.Timeout = 300 * time.Millisecond
			}
			o := open(with, time.Hour, 0)
			o.send(t, "alice")
			require.Len(t, o.end(time.Minute), tt.unsent)
			if child, err := os.ReadFile(program + ".child"); err == nil {
				pid := proctest.Try(strconv.Atoi(strings.TrimSpace(string(child)))).OK(t)
				t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // if it is there
			}
			if tt.unsent > 0 {
				return
			}
			if tt.fails != "" {
				require.ErrorContains(t, o.results[0].Err, tt.fails)
				return
			}
			require.NoError(t, o.results[0].Err)
			require.Equal(t, "-i -f genv@example.org alice@example.org\n", proctest.ReadText(t, program+".args"))
			data := proctest.ReadFile(t, program+".mail")
			if name == "it takes the mail" {
				require.NotContains(t, string(data), "\r")
				_, body := decoded(t, string(data))
				require.Contains(t, body, "Process 4242")
			}
		})
	}
}
