package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"
)

// MaxBody is how long a frame's body may be, in bytes.
const MaxBody = 32 << 20

// ErrProtocol is wrapped by every error that says the other end did not keep to
// the protocol: garbled, too long, out of order, or another version.
var ErrProtocol = errors.New("the other end does not keep to the protocol")

// kind is what a frame is.
type kind byte

const (
	kindGreeting kind = 'G'
	kindRequest  kind = 'Q'
	kindAnswer   kind = 'A'
	kindRefusal  kind = 'R' // an answer that is an error, in words
)

// frame is a message: a header of 4 bytes "gnv1", 1 byte of kind, 1 byte of the
// name's length, 2 bytes of zero, 8 bytes of id, 4 bytes of the body's length;
// the name; the body; and 4 bytes of CRC-32C over all before. Numbers are
// big-endian. SSH guards what it carries; the checksum is for what gets into
// the stream before it, such as a line that a login script prints late.
type frame struct {
	kind kind
	name string // what a request asks for
	id   uint64
	body []byte
}

const headerLength = 20

var magic = [4]byte{'g', 'n', 'v', '1'}

// castagnoli is made when it is first needed: to make it takes a good part of
// what the start of a command takes.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// append encodes the frame behind b.
func (f *frame) append(b []byte) []byte {
	start := len(b)
	b = slices.Grow(b, headerLength+len(f.name)+len(f.body)+4)
	b = append(b, magic[:]...)
	b = append(b, byte(f.kind), byte(len(f.name)), 0, 0)
	b = binary.BigEndian.AppendUint64(b, f.id)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.body)))
	b = append(b, f.name...)
	b = append(b, f.body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli()))
}

// check returns an error if the frame is too long to send.
func (f *frame) check() error {
	if len(f.body) > MaxBody || len(f.name) > 255 {
		return fmt.Errorf("%w: a frame of %d bytes is too long to send", ErrProtocol, len(f.body))
	}
	return nil
}

// readFrame reads a frame. The body grows as it arrives, so that a header that
// lies costs no memory. io.EOF means that the stream ended between frames.
func readFrame(r io.Reader) (*frame, error) {
	var header [headerLength]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w: cut in the middle of a frame", ErrProtocol)
		}
		return nil, err
	}
	if !bytes.Equal(header[:4], magic[:]) || header[6] != 0 || header[7] != 0 {
		return nil, fmt.Errorf("%w: %q is no frame", ErrProtocol, header[:8])
	}
	nameLength, bodyLength := int(header[5]), binary.BigEndian.Uint32(header[16:])
	if bodyLength > MaxBody {
		return nil, fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, bodyLength)
	}
	var rest bytes.Buffer
	length := int64(nameLength) + int64(bodyLength) + 4
	if n, err := io.CopyN(&rest, r, length); err != nil {
		return nil, fmt.Errorf("%w: cut after %d of %d bytes of a frame: %s", ErrProtocol, n, length, err.Error()) // not wrapped: it is no orderly end
	}
	return checkFrame(header, rest.Bytes(), nameLength)
}

func checkFrame(header [headerLength]byte, rest []byte, nameLength int) (*frame, error) {
	content, sum := rest[:len(rest)-4], binary.BigEndian.Uint32(rest[len(rest)-4:])
	if crc32.Update(crc32.Checksum(header[:], castagnoli()), castagnoli(), content) != sum {
		return nil, fmt.Errorf("%w: a garbled frame", ErrProtocol)
	}
	return &frame{
		kind: kind(header[4]), id: binary.BigEndian.Uint64(header[8:]),
		name: string(content[:nameLength]), body: content[nameLength:],
	}, nil
}
