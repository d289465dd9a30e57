// Package mailtest is a mail server for tests, on loopback, with the certificate of net/http/httptest
// for 127.0.0.1. It can fail at every step.
//
//	s := mailtest.Start(t)
//	s.Answer("RCPT", "451 later")
//	… // send to s.Address
//	mails := s.Mails()
package mailtest

import (
	"cmp"
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Mail is a mail that the server took.
type Mail struct {
	From, To string
	Data     string // with CRLF, without the dot at the end
	TLS      bool
}

// Server is a mail server.
type Server struct {
	Address string // host:port
	CAFile  string // of its certificate

	config   *tls.Config
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	mails    []Mail
	commands []string          // that clients sent in the clear, and under TLS with "tls " before
	answers  map[string]string // by command
	once     map[string]bool   // answers for one time
	conns    map[net.Conn]bool
	noTLS    bool
	implicit bool
	methods  string
	logins   []string
}

// Option changes a Server before it starts.
type Option func(*Server)

// WithoutTLS offers no STARTTLS.
func WithoutTLS(s *Server) { s.noTLS = true }

// Implicit encrypts from the first byte.
func Implicit(s *Server) { s.implicit = true }

// Auth offers these methods of logging in.
func Auth(methods string) Option { return func(s *Server) { s.methods = methods } }

// Start starts a server, which ends with the test.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	s := &Server{answers: map[string]string{}, once: map[string]bool{}, conns: map[net.Conn]bool{}}
	for _, o := range options {
		o(s)
	}
	https := httptest.NewUnstartedServer(nil)
	https.StartTLS()
	https.Close() // it made a certificate
	s.config = &tls.Config{Certificates: https.TLS.Certificates, MinVersion: tls.VersionTLS12}
	s.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw})
	require.NoError(t, os.WriteFile(s.CAFile, authority, 0o600))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.listener, s.Address = listener, listener.Addr().String()
	s.running.Go(s.accept)
	t.Cleanup(s.Close)
	return s
}

// Close ends the server and its connections.
func (s *Server) Close() {
	_ = s.listener.Close()
	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Answer has the server answer a command, or END at the end of a mail, in another way; "RCPT a@b.org" is that of one
// recipient. "drop" drops the connection, "hang" answers nothing.
func (s *Server) Answer(command, answer string) { s.answer(command, answer, false) }

// AnswerOnce is Answer for the next time alone.
func (s *Server) AnswerOnce(command, answer string) { s.answer(command, answer, true) }

func (s *Server) answer(command, answer string, once bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[command], s.once[command] = answer, once
}

func (s *Server) hasAnswer(command string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers[command] != ""
}

// Mails are the mails that came.
func (s *Server) Mails() []Mail { return kept(s, &s.mails) }

// Commands are what clients sent, with "tls " before what came encrypted.
func (s *Server) Commands() []string { return kept(s, &s.commands) }

// Logins are the names and passwords that came.
func (s *Server) Logins() []string { return kept(s, &s.logins) }

func kept[T any](s *Server, list *[]T) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(*list)
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[conn] = true
		s.mu.Unlock()
		s.running.Go(func() {
			defer conn.Close()
			(&smtpConn{server: s, conn: conn}).serve()
		})
	}
}

// smtpConn is one connection.
type smtpConn struct {
	server *Server
	conn   net.Conn
	text   *textproto.Conn // over conn
	tls    bool
	mail   Mail
}

func (c *smtpConn) encrypt() {
	c.conn, c.tls = tls.Server(c.conn, c.server.config), true
	c.text = textproto.NewConn(c.conn)
}

func (c *smtpConn) serve() {
	c.text = textproto.NewConn(c.conn)
	if c.server.implicit {
		c.encrypt()
	}
	for goes := c.say("", "220 test ESMTP"); goes; {
		line, err := c.text.ReadLine()
		goes = err == nil && c.command(line)
	}
}

// say answers a command; false ends the connection.
func (c *smtpConn) say(command, answer string) bool {
	s := c.server
	s.mu.Lock()
	answer = cmp.Or(s.answers[command], answer)
	if s.once[command] {
		delete(s.answers, command)
		delete(s.once, command)
	}
	s.mu.Unlock()
	switch answer {
	case "drop":
		return false
	case "hang":
		_, _ = c.text.R.ReadString(0) // until the client gives up
		return false
	}
	return c.text.PrintfLine("%s", strings.ReplaceAll(answer, "\n", "\r\n")) == nil
}

func (c *smtpConn) command(line string) bool {
	s := c.server
	name, rest, _ := strings.Cut(line, " ")
	name = strings.ToUpper(name)
	if c.tls {
		line = "tls " + line
	}
	s.mu.Lock()
	s.commands = append(s.commands, line)
	s.mu.Unlock()
	switch name {
	case "EHLO":
		return c.say(name, c.capabilities())
	case "STARTTLS":
		goes := c.say(name, "220 go ahead")
		if goes {
			c.encrypt()
		}
		return goes
	case "AUTH":
		return c.auth(rest)
	case "MAIL":
		c.mail = Mail{From: address(rest), TLS: c.tls}
		return c.say(name, "250 ok")
	case "RCPT":
		c.mail.To = address(rest)
		if to := name + " " + c.mail.To; s.hasAnswer(to) {
			name = to
		}
		return c.say(name, "250 ok")
	case "NOOP", "RSET":
		return c.say(name, "250 ok")
	case "DATA":
		refused := s.hasAnswer(name)
		return c.say(name, "354 go on") && (refused || c.data())
	case "QUIT":
		c.say(name, "221 bye")
		return false
	}
	return c.say(name, "502 what?")
}

func (c *smtpConn) capabilities() string {
	list := "250-test\n"
	if !c.tls && !c.server.noTLS {
		list += "250-STARTTLS\n"
	}
	if c.server.methods != "" {
		list += "250-AUTH " + c.server.methods + "\n"
	}
	return list + "250 8BITMIME"
}

// auth takes any login.
func (c *smtpConn) auth(login string) bool {
	if strings.HasPrefix(login, "LOGIN") {
		for _, prompt := range []string{"334 VXNlcm5hbWU6", "334 UGFzc3dvcmQ6"} {
			if !c.say("", prompt) {
				return false
			}
			line, err := c.text.ReadLine()
			if err != nil {
				return false
			}
			login += " " + line
		}
	}
	c.server.mu.Lock()
	c.server.logins = append(c.server.logins, login)
	c.server.mu.Unlock()
	return c.say("AUTH", "235 welcome")
}

// data takes a mail. It counts as taken only when the server says so.
func (c *smtpConn) data() bool {
	var data strings.Builder
	for {
		line, err := c.text.R.ReadString('\n')
		if err != nil {
			return false
		}
		if line == ".\r\n" {
			break
		}
		data.WriteString(strings.TrimPrefix(line, "."))
	}
	c.mail.Data = data.String()
	s := c.server
	s.mu.Lock()
	if answer := cmp.Or(s.answers["END"], "2"); answer[0] == '2' || answer == "drop" { // "drop" loses only the answer
		s.mails = append(s.mails, c.mail)
	}
	s.mu.Unlock()
	return c.say("END", "250 taken")
}

// address is the text between < and >.
func address(rest string) string {
	_, rest, _ = strings.Cut(rest, "<")
	inside, _, _ := strings.Cut(rest, ">")
	return inside
}
