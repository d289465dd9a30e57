// Package mailtest is a mail server for tests, on loopback, with its own certificate. It
// can fail at every step.
//
//	s := mailtest.Start(t)
//	s.Answer("RCPT", "451 later")
//	… // send to s.Address
//	mails := s.Mails()
package mailtest

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
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

	mu        sync.Mutex
	mails     []Mail
	commands  []string          // that clients sent in the clear, and under TLS with "tls " before
	answers   map[string]string // by command
	once      map[string]bool   // answers for one time
	conns     map[net.Conn]bool
	noTLS     bool
	implicit  bool
	otherName bool
	methods   string
	logins    []string
}

// Option changes a Server before it starts.
type Option func(*Server)

// WithoutTLS offers no STARTTLS.
func WithoutTLS(s *Server) { s.noTLS = true }

// Implicit encrypts from the first byte.
func Implicit(s *Server) { s.implicit = true }

// OtherName has a certificate for another name.
func OtherName(s *Server) { s.otherName = true }

// Auth offers these methods of logging in.
func Auth(methods string) Option { return func(s *Server) { s.methods = methods } }

// Start starts a server, which ends with the test.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	s := &Server{answers: map[string]string{}, once: map[string]bool{}, conns: map[net.Conn]bool{}}
	for _, o := range options {
		o(s)
	}
	s.certify(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// Answer has the server answer a command, or END at the end of a mail, in another way.
// "drop" drops the connection, "hang" answers nothing.
func (s *Server) Answer(command, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[command] = answer
}

// AnswerOnce is Answer for the next time alone.
func (s *Server) AnswerOnce(command, answer string) {
	s.Answer(command, answer)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once[command] = true
}

// Mails are the mails that came.
func (s *Server) Mails() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mails)
}

// Commands are what clients sent, with "tls " before what came encrypted.
func (s *Server) Commands() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.commands)
}

// Logins are the names and passwords that came.
func (s *Server) Logins() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.logins)
}

func (s *Server) certify(t testing.TB) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "genv test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if s.otherName {
		template.IPAddresses, template.DNSNames = nil, []string{"mail.example.org"}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(s.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	s.config = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
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
			(&session{server: s, conn: conn}).serve()
		})
	}
}

// session is one connection.
type session struct {
	server *Server
	conn   net.Conn
	lines  *bufio.Reader
	tls    bool
	mail   Mail
}

func (c *session) serve() {
	if c.server.implicit {
		c.conn, c.tls = tls.Server(c.conn, c.server.config), true
	}
	c.lines = bufio.NewReader(c.conn)
	if !c.say("", "220 test ESMTP") {
		return
	}
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			return
		}
		if line = strings.TrimRight(line, "\r\n"); !c.command(line) {
			return
		}
	}
}

// say answers a command; false ends the connection.
func (c *session) say(command, answer string) bool {
	s := c.server
	s.mu.Lock()
	if other, ok := s.answers[command]; ok {
		answer = other
		if s.once[command] {
			delete(s.answers, command)
			delete(s.once, command)
		}
	}
	s.mu.Unlock()
	switch answer {
	case "drop":
		return false
	case "hang":
		_, _ = c.lines.ReadString(0) // until the client gives up
		return false
	}
	_, err := fmt.Fprint(c.conn, strings.ReplaceAll(answer, "\n", "\r\n")+"\r\n")
	return err == nil
}

func (c *session) command(line string) bool {
	s := c.server
	name, rest, _ := strings.Cut(line, " ")
	name = strings.ToUpper(name)
	shown := line
	if c.tls {
		shown = "tls " + line
	}
	s.mu.Lock()
	s.commands = append(s.commands, shown)
	s.mu.Unlock()
	switch name {
	case "EHLO":
		return c.say(name, c.capabilities())
	case "STARTTLS":
		if !c.say(name, "220 go ahead") {
			return false
		}
		c.conn, c.tls = tls.Server(c.conn, s.config), true
		c.lines = bufio.NewReader(c.conn)
		return true
	case "AUTH":
		return c.auth(rest)
	case "MAIL":
		c.mail = Mail{From: address(rest), TLS: c.tls}
		return c.say(name, "250 ok")
	case "RCPT":
		c.mail.To = address(rest)
		return c.say(name, "250 ok")
	case "DATA":
		return c.say(name, "354 go on") && c.data()
	case "QUIT":
		c.say(name, "221 bye")
		return false
	}
	return c.say(name, "502 what?")
}

func (c *session) capabilities() string {
	list := []string{"250-test"}
	if !c.tls && !c.server.noTLS {
		list = append(list, "250-STARTTLS")
	}
	if c.server.methods != "" {
		list = append(list, "250-AUTH "+c.server.methods)
	}
	return strings.Join(append(list, "250 8BITMIME"), "\n")
}

// auth takes any login.
func (c *session) auth(rest string) bool {
	s := c.server
	login := rest
	if strings.HasPrefix(rest, "LOGIN") {
		for _, prompt := range []string{"334 VXNlcm5hbWU6", "334 UGFzc3dvcmQ6"} {
			if !c.say("", prompt) {
				return false
			}
			line, err := c.lines.ReadString('\n')
			if err != nil {
				return false
			}
			login += " " + strings.TrimRight(line, "\r\n")
		}
	}
	s.mu.Lock()
	s.logins = append(s.logins, login)
	s.mu.Unlock()
	return c.say("AUTH", "235 welcome")
}

// data takes a mail. It counts as taken only when the server says so.
func (c *session) data() bool {
	var data strings.Builder
	for {
		line, err := c.lines.ReadString('\n')
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
	answer, other := s.answers["END"]
	if !other || strings.HasPrefix(answer, "2") || answer == "drop" { // the worst case: taken, and the answer is lost
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
