// Package frame encodes messages between controller and host: frames, and the greeting before them (docs/protocol.md).
// remote/agent has their contents.
package frame

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"
	"time"
)

// MaxBody limits a frame's body, in bytes.
const MaxBody = 32 << 20

// ErrProtocol is wrapped if the other end broke the protocol: a message is garbled, too long, out of order, or of
// another version.
var ErrProtocol = errors.New("the other end does not keep to the protocol")

// Kind is the kind of a frame.
type Kind byte

const (
	KindGreeting Kind = 'G'
	KindRequest  Kind = 'Q'
	KindAnswer   Kind = 'A'
	KindRefusal  Kind = 'R' // an answer that is an error, in words
)

// Frame is a message: a header of 4 bytes "gnv1", 1 byte of kind, 1 byte of the name's length, 2 bytes of zero, 8 bytes
// of id, 4 bytes of the body's length; the name; the body; and 4 bytes of CRC-32C over all before, since a login script
// may print something late. Numbers are big-endian.
type Frame struct {
	Kind Kind
	Name string // of a request
	ID   uint64
	Body []byte

	Received time.Time // when the host got the request
}

const headerLength = 20

var magic = [4]byte{'g', 'n', 'v', '1'}

// castagnoli is made at first use, since that takes a good part of a command's start.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// Append appends the encoded frame to b.
func (f *Frame) Append(b []byte) []byte {
	start := len(b)
	b = slices.Grow(b, headerLength+len(f.Name)+len(f.Body)+4)
	b = append(b, magic[:]...)
	b = append(b, byte(f.Kind), byte(len(f.Name)), 0, 0)
	b = binary.BigEndian.AppendUint64(b, f.ID)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Body)))
	b = append(b, f.Name...)
	b = append(b, f.Body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli()))
}

// Check returns an error if the frame is too long to send.
func (f *Frame) Check() error {
	if len(f.Body) > MaxBody || len(f.Name) > 255 {
		return fmt.Errorf("%w: a frame of %d bytes is too long to send", ErrProtocol, len(f.Body))
	}
	return nil
}

// Read reads a frame. Its memory grows as the body arrives, whatever length the header has. io.EOF means that the
// stream ended between frames.
func Read(r io.Reader) (*Frame, error) {
	header := make([]byte, headerLength)
	n, err := fill(r, header)
	if err == nil {
		return readRest(r, header)
	}
	if n > 0 && errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: cut in the middle of a frame", ErrProtocol)
	}
	return nil, err
}

func readRest(r io.Reader, header []byte) (*Frame, error) {
	if !bytes.Equal(header[:4], magic[:]) || header[6] != 0 || header[7] != 0 {
		return nil, fmt.Errorf("%w: %q does not begin a frame", ErrProtocol, header[:8])
	}
	nameLength, bodyLength := int(header[5]), binary.BigEndian.Uint32(header[16:])
	if bodyLength > MaxBody {
		return nil, fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, bodyLength)
	}
	length := nameLength + int(bodyLength) + 4
	rest := make([]byte, 0, min(length, firstRoom))
	for len(rest) < length {
		if len(rest) == cap(rest) {
			rest = slices.Grow(rest, min(len(rest), length-len(rest)))
		}
		n, err := fill(r, rest[len(rest):min(cap(rest), length)])
		if rest = rest[:len(rest)+n]; err != nil {
			// Not wrapped, since an io.EOF here isn't an orderly end.
			return nil, fmt.Errorf("%w: cut after %d of %d bytes of a frame: %s", ErrProtocol, len(rest), length,
				err.Error())
		}
	}
	return checkFrame(header, rest, nameLength)
}

const firstRoom = 4 << 10 // for a frame before it has arrived, in bytes

// fill is io.ReadFull, but returns io.EOF whatever is missing, and needs half the stack: a goroutine for each host
// waits in it.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = r.Read(b[n:])
		n += more
	}
	if n == len(b) {
		err = nil
	}
	return n, err
}

func checkFrame(header, rest []byte, nameLength int) (*Frame, error) {
	content, sum := rest[:len(rest)-4], binary.BigEndian.Uint32(rest[len(rest)-4:])
	if crc32.Update(crc32.Checksum(header, castagnoli()), castagnoli(), content) != sum {
		return nil, fmt.Errorf("%w: a garbled frame", ErrProtocol)
	}
	return &Frame{
		Kind: Kind(header[4]), ID: binary.BigEndian.Uint64(header[8:]),
		Name: string(content[:nameLength]), Body: content[nameLength:],
	}, nil
}

// Version is the version of the protocol.
const Version = 1

const (
	maxNoise    = 1 << 20  // what a login may print before the greeting, in bytes
	maxGreeting = 64 << 10 // the greeting's body, in bytes
)

// ErrNoGreeting says that the output ended, or was too long, without our greeting: no `usage serve` runs there.
var ErrNoGreeting = errors.New("no greeting came")

// Greeting is the first message, from the host.
type Greeting struct {
	Protocol     int      `json:"protocol"`
	Genv         string   `json:"genv"` // the version of the program
	Capabilities []string `json:"capabilities"`
}

// Can reports whether the host has a capability.
func (g Greeting) Can(request string) bool { return slices.Contains(g.Capabilities, request) }

// Beacon is the line before the greeting. The end that starts the command chooses the token, so no banner can have it.
func Beacon(token string) []byte { return []byte("\ngenv-serve " + token + "\n") }

// Encode returns the beacon and the greeting.
func (g Greeting) Encode(token string) ([]byte, error) {
	body, err := json.Marshal(g)
	f := Frame{Kind: KindGreeting, Body: body}
	return f.Append(Beacon(token)), err
}

// ReadGreeting reads the greeting. It skips the login's output up to the beacon.
func ReadGreeting(r *bufio.Reader, token string) (Greeting, error) {
	if err := skipTo(r, Beacon(token)); err != nil {
		return Greeting{}, err
	}
	f, err := Read(r)
	if err != nil {
		return Greeting{}, fmt.Errorf("read the greeting: %w", err)
	}
	if len(f.Body) > maxGreeting {
		return Greeting{}, fmt.Errorf("%w: a greeting of %d bytes", ErrProtocol, len(f.Body))
	}
	var g Greeting
	if err := json.Unmarshal(f.Body, &g); err != nil || f.Kind != KindGreeting {
		return Greeting{}, fmt.Errorf("%w: no greeting behind the beacon", ErrProtocol)
	}
	if g.Protocol != Version {
		return g, fmt.Errorf("%w: the host has version %d of the protocol, and this program %d", ErrVersion, g.Protocol,
			Version)
	}
	return g, nil
}

// ErrVersion says that the other end speaks another version of the protocol.
var ErrVersion = errors.New("another version")

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
