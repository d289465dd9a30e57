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

// Place is a line of a file.
type Place struct {
	File string
	Line int // 0: the whole file
}

func (p Place) String() string {
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

type entry struct {
	place      Place
	marker     string   // authority, revoked or empty
	patterns   []string // of names, in lower case
	salt, hash []byte   // of a name, in place of patterns
	kind       string   // the key's type
	key        string   // in the format of the SSH protocol
}

// parse reads the lines of a known_hosts file, and returns an error for each line that is not in its format.
func parse(file string, content []byte) (entries []entry, bad []badLine) {
	number := 0
	for line := range bytes.Lines(content) {
		number++
		e, err := parseLine(line)
		switch {
		case errors.Is(err, io.EOF): // empty, or a comment
		case err != nil:
			bad = append(bad, badLine{number, err})
		default:
			e.place = Place{file, number}
			entries = append(entries, e)
		}
	}
	return entries, bad
}

type badLine struct {
	number int
	err    error
}

// parseLine returns io.EOF for a line without an entry.
func parseLine(line []byte) (entry, error) {
	line = bytes.TrimSpace(line)
	if len(line) > 0 && line[0] != '#' && !bytes.ContainsAny(line, " \t") {
		return entry{}, errors.New("only one word") // the library takes it as empty
	}
	marker, names, key, _, _, err := ssh.ParseKnownHosts(line)
	if err != nil {
		return entry{}, err
	}
	if marker != "" && marker != authority && marker != revoked || strings.HasPrefix(names[0], "@") {
		return entry{}, fmt.Errorf("unknown marker @%s", marker)
	}
	e := entry{marker: marker, kind: key.Type(), key: string(key.Marshal())}
	return e, e.setNames(names)
}

func (e *entry) setNames(names []string) (err error) {
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

func (e *entry) matches(name string) bool {
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
func entriesOf(entries []entry, name string) (found []*entry) {
	for i := range entries {
		if entries[i].matches(name) {
			found = append(found, &entries[i])
		}
	}
	return found
}
