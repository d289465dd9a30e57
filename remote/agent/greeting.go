package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Version is the protocol that this package speaks.
const Version = 1

// maxNoise is how much a login may print before the greeting, in bytes.
const maxNoise = 1 << 20

// maxGreeting is how long the greeting's body may be, in bytes.
const maxGreeting = 64 << 10

// ErrNoGreeting says that the output ended, or went on for too long, without
// our greeting in it: there is no `usage serve` at the other end.
var ErrNoGreeting = errors.New("no greeting came")

// Greeting is the first message, from the host.
type Greeting struct {
	Protocol     int      `json:"protocol"`
	Genv         string   `json:"genv"` // the version of the program
	Capabilities []string `json:"capabilities"`
}

// Can says whether the host knows a request.
func (g Greeting) Can(request string) bool { return slices.Contains(g.Capabilities, request) }

// beacon is the line before the greeting. Whoever starts the command makes up
// the token, so that no banner holds it by chance or by intent.
func beacon(token string) []byte { return []byte("\ngenv-serve " + token + "\n") }

// encode returns the greeting behind its beacon.
func (g Greeting) encode(token string) ([]byte, error) {
	body, err := json.Marshal(g)
	f := frame{kind: kindGreeting, body: body}
	return f.append(beacon(token)), err
}

// readGreeting skips what a login prints, up to the beacon.
func readGreeting(r *bufio.Reader, token string) (Greeting, error) {
	if err := skipTo(r, beacon(token)); err != nil {
		return Greeting{}, err
	}
	f, err := readFrame(r)
	if err != nil {
		return Greeting{}, fmt.Errorf("read the greeting: %w", err)
	}
	if len(f.body) > maxGreeting {
		return Greeting{}, fmt.Errorf("%w: a greeting of %d bytes", ErrProtocol, len(f.body))
	}
	var g Greeting
	if err := json.Unmarshal(f.body, &g); err != nil || f.kind != kindGreeting {
		return Greeting{}, fmt.Errorf("%w: no greeting behind the beacon", ErrProtocol)
	}
	if g.Protocol != Version {
		return g, fmt.Errorf("%w: it speaks version %d of the protocol, and this program %d", ErrVersion, g.Protocol, Version)
	}
	return g, nil
}

// ErrVersion says that the other end speaks another version of the protocol.
var ErrVersion = errors.New("another version")

// skipTo reads up to and including the mark.
func skipTo(r *bufio.Reader, mark []byte) error {
	line := []byte{'\n'} // the mark may begin with the first byte
	for read := 0; read <= maxNoise; {
		part, err := r.ReadSlice('\n')
		read += len(part)
		if len(line) < len(mark)+1 {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return fmt.Errorf("%w: %w", ErrNoGreeting, err)
		case bytes.Equal(line, mark):
			return nil
		}
		line = append(line[:0], '\n')
	}
	return fmt.Errorf("%w within %d bytes", ErrNoGreeting, maxNoise)
}
