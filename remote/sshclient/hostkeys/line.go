package hostkeys

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // hashed names are an HMAC with SHA-1 (sshd(8), SSH_KNOWN_HOSTS)
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

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

// The markers of a line (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).
const (
	authority = "cert-authority"
	revoked   = "revoked"
)

type knownKey struct {
	place      Position
	marker     string   // authority, revoked or empty
	patterns   []string // of names, in lower case
	salt, hash []byte   // of a name, in place of patterns
	kind       string   // the key's type
	key        string   // in the format of the SSH protocol
}

// parse reads the lines of a known_hosts file, and returns how many are not in its format, and the number of the first
// one with its error.
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
	return bytes.Equal(nameHash(e.salt, name), e.hash)
}

// nameHash is what known_hosts has in place of a name.
func nameHash(salt []byte, name string) []byte {
	mac := hmac.New(sha1.New, salt)
	mac.Write([]byte(name))
	return mac.Sum(nil)
}

// entriesOf are those of a name, which is in lower case.
func entriesOf(entries []knownKey, name string) (found []*knownKey) {
	for i := range entries {
		if entries[i].matches(name) {
			found = append(found, &entries[i])
		}
	}
	return found
}
