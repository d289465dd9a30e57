package hostkeys

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // hashed names are an HMAC with SHA-1 (sshd(8), SSH_KNOWN_HOSTS)
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Cache has known_hosts files, and rereads changed ones, safely for concurrent use.
type Cache struct {
	log     zerolog.Logger
	mu      sync.Mutex
	files   map[string]*knownHosts
	running chan struct{} // limits processes
	writing sync.Mutex    // one append at a time
}

// maxProcesses is high enough that a few hanging commands delay no other host.
const maxProcesses = 32

// NewCache returns a Cache that warns of bad lines and files.
func NewCache(log zerolog.Logger) *Cache {
	return &Cache{log: log, files: map[string]*knownHosts{}, running: make(chan struct{}, maxProcesses)}
}

type knownHosts struct {
	stamp   string
	entries []knownKey
	err     error // why it couldn't be read
}

func (s *Cache) load(name string) *knownHosts {
	stamp := folder.Stamp(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[name]; f != nil && f.stamp == stamp {
		return f
	}
	f := &knownHosts{stamp: stamp}
	content, err := readFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.err = fmt.Errorf("cannot read the known hosts: %w", err)
		s.log.Warn().Str("file", name).Err(err).Msg("known_hosts: file skipped")
	}
	entries, bad, first, why := parse(name, content)
	if bad > 0 {
		s.log.Warn().Str("file", name).Int("line", first).Int("lines", bad).Err(why).
			Msg("known_hosts: bad lines skipped; the first one is shown")
	}
	f.entries = entries
	s.files[name] = f
	return f
}

const maxFile = 64 << 20 // bytes

func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if name != os.DevNull && !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is not a regular file of at most %d MiB", name, maxFile>>20)
	}
	return os.ReadFile(name)
}

// Accept adds an unknown host's key, or its certificate's, to known_hosts (StrictHostKeyChecking accept-new), unless
// one of its files is unreadable: the host may be known there.
func (s *Cache) Accept(h *Known, key ssh.PublicKey, rules Rules, now time.Time) error {
	if rules.AddTo == "" {
		return errors.New("there is no user known_hosts file to add the key to")
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	h = s.Lookup(h.paths, h.name) // another connection may have added it
	if err := errors.Join(h.missing...); err != nil {
		return err
	}
	err := h.Check(key, rules, now)
	if _, unknown := errors.AsType[*Unknown](err); !unknown {
		return err
	}
	known := h.name.String()
	if rules.Hash {
		known = knownhosts.HashHostname(known)
	}
	if err := appendLine(rules.AddTo, known+" "+string(ssh.MarshalAuthorizedKey(Plain(key)))); err != nil {
		return fmt.Errorf("cannot add the key of %s: %w", h.name, err)
	}
	s.log.Warn().Str("file", rules.AddTo).Str("host", h.name.String()).Str("fingerprint", Fingerprint(key)).
		Msg("known_hosts: the key of a new host was added (accept-new)")
	return nil
}

// appendLine writes a line in one call, under a lock, after completing the last one.
func appendLine(name, line string) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	last := []byte("\n")
	if info.Size() > 0 {
		if _, err := file.ReadAt(last, info.Size()-1); err != nil {
			return err
		}
	}
	if last[0] != '\n' {
		line = "\n" + line
	}
	_, err = file.WriteString(line)
	return err
}

const nameToken = "\x00H" // token %H of KnownHostsCommand, known only during the handshake

// Ask runs KnownHostsCommand (see config.HostConfig), and returns the host with the lines for the name. As in ssh, a
// failing command is an error, and a missing one isn't.
func (s *Cache) Ask(ctx context.Context, h *Known, command []string, name Name) (*Known, error) {
	with, program := *h, command[0]
	if _, err := os.Stat(program); err != nil || !filepath.IsAbs(program) {
		missing := fmt.Errorf("KnownHostsCommand %s can't be run: it has to be the absolute path of a program", program)
		with.missing = slices.Concat(h.missing, []error{missing})
		return &with, nil
	}
	var arguments []string
	for _, argument := range command[1:] {
		arguments = append(arguments, strings.ReplaceAll(argument, nameToken, name.String()))
	}
	out, err := s.output(ctx, exec.CommandContext(ctx, program, arguments...)) //nolint:gosec // no shell
	if err != nil {
		return nil, fmt.Errorf("KnownHostsCommand %s: %w", program, err)
	}
	entries, _, _, _ := parse("KnownHostsCommand "+program, out)
	with.entries = slices.Concat(h.entries, entriesOf(entries, name.String()))
	return &with, nil
}

const (
	maxOutput = 1 << 20         // bytes per command
	grace     = 2 * time.Second // for its children after its end
)

// output runs a command of ctx in its own process group. The error has stderr's last line.
func (s *Cache) output(ctx context.Context, command *exec.Cmd) ([]byte, error) {
	select {
	case s.running <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.running }()
	out, stderr := &text.Head{Limit: maxOutput}, &text.Head{Limit: 4 << 10}
	command.Stdout, command.Stderr, command.WaitDelay = out, stderr, grace
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return unix.Kill(-command.Process.Pid, unix.SIGKILL) } // its children too
	err := command.Run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if out.Cut {
		return nil, fmt.Errorf("it wrote more than %d MiB", maxOutput>>20)
	}
	if said := text.LastLine(stderr.String()); err != nil && said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return []byte(out.String()), err
}

// Position is a line of a file.
type Position struct {
	File string
	Line int // 0: the whole file
}

func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Markers of a line (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).
const (
	authority = "cert-authority"
	revoked   = "revoked"
)

type knownKey struct {
	place      Position
	marker     string   // authority, revoked or empty
	patterns   []string // of names, lower case
	salt, hash []byte   // of a name, instead of patterns
	kind       string   // key type
	key        string   // SSH wire format
}

// parse counts bad lines; first is the first one's number.
func parse(file string, content []byte) (entries []knownKey, bad, first int, why error) {
	number := 0
	for line := range bytes.Lines(content) {
		number++
		e, err := parseLine(line)
		switch {
		case errors.Is(err, io.EOF): // empty, or a comment
		case err == nil:
			e.place = Position{file, number}
			entries = append(entries, e)
		default:
			if bad++; bad == 1 {
				first, why = number, err
			}
		}
	}
	return entries, bad, first, why
}

// parseLine returns io.EOF for a line without an entry.
func parseLine(line []byte) (knownKey, error) {
	line = bytes.TrimSpace(line)
	if len(line) > 0 && line[0] != '#' && !bytes.ContainsAny(line, " \t") {
		return knownKey{}, errors.New("only one word") // the library takes it as empty
	}
	marker, names, key, _, _, err := ssh.ParseKnownHosts(line)
	if err != nil {
		return knownKey{}, err
	}
	if marker != "" && marker != authority && marker != revoked || strings.HasPrefix(names[0], "@") {
		return knownKey{}, fmt.Errorf("unknown marker @%s", marker)
	}
	e := knownKey{marker: marker, kind: key.Type(), key: string(key.Marshal())}
	return e, e.setNames(names)
}

func (e *knownKey) setNames(names []string) (err error) {
	if strings.HasPrefix(names[0], "|") {
		parts := strings.Split(strings.Join(names, ","), "|")
		if len(parts) != 4 || parts[1] != "1" {
			return errors.New("unknown hash")
		}
		if e.salt, err = base64.StdEncoding.DecodeString(parts[2]); err == nil {
			e.hash, err = base64.StdEncoding.DecodeString(parts[3])
		}
		if err != nil || len(e.salt) != sha1.Size || len(e.hash) != sha1.Size {
			return errors.New("bad hash")
		}
		return nil
	}
	for _, name := range names {
		plain := strings.TrimPrefix(name, "!")
		if plain == "" && name != "" || strings.HasPrefix(plain, "[") && !strings.Contains(plain, "]:") {
			return fmt.Errorf("bad host name %q", name)
		}
		e.patterns = append(e.patterns, strings.ToLower(name))
	}
	return nil
}

func (e *knownKey) matches(name string) bool {
	if e.hash == nil {
		return config.MatchesAny(e.patterns, name)
	}
	mac := hmac.New(sha1.New, e.salt)
	mac.Write([]byte(name))
	return bytes.Equal(mac.Sum(nil), e.hash)
}

// entriesOf returns the entries of a lower-case name.
func entriesOf(entries []knownKey, name string) (found []*knownKey) {
	for i := range entries {
		if entries[i].matches(name) {
			found = append(found, &entries[i])
		}
	}
	return found
}
