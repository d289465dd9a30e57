package controlmaster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The messages of PROTOCOL.mux that are used here.
const (
	msgHello         = 0x00000001
	msgNewSession    = 0x10000002
	msgAliveCheck    = 0x10000004
	msgNewForward    = 0x10000008
	msgDenied        = 0x80000002
	msgFailure       = 0x80000003
	msgExit          = 0x80000004
	msgAlive         = 0x80000005
	msgSessionOpened = 0x80000006
)

// protocol is the only version there is.
const protocol = 4

// maxPacket is what OpenSSH accepts, in bytes.
const maxPacket = 256 << 10

var errMalformed = errors.New("the ssh at the ControlPath sent a malformed message")

// packet is a message: uint32 and string fields, as in RFC 4251, section 5.
type packet []byte

func message(kind uint32, fields ...any) packet {
	p := binary.BigEndian.AppendUint32(nil, kind)
	for _, field := range fields {
		switch v := field.(type) {
		case uint32:
			p = binary.BigEndian.AppendUint32(p, v)
		case string:
			p = append(binary.BigEndian.AppendUint32(p, uint32(len(v))), v...)
		}
	}
	return p
}

// send writes a message behind its length.
func send(w io.Writer, p packet) error {
	if len(p) > maxPacket {
		return fmt.Errorf("a command of %d bytes is too long for a ControlMaster", len(p))
	}
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...))
	return err
}

// receive reads a message and returns its kind and the rest.
func receive(r io.Reader) (kind uint32, rest packet, err error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n < 4 || n > maxPacket {
		return 0, nil, errMalformed
	}
	p := make(packet, n)
	if _, err := io.ReadFull(r, p); err != nil {
		return 0, nil, err
	}
	kind, _ = p.number()
	return kind, p, nil
}

// number takes a uint32 off the beginning.
func (p *packet) number() (uint32, bool) {
	if len(*p) < 4 {
		return 0, false
	}
	n := binary.BigEndian.Uint32(*p)
	*p = (*p)[4:]
	return n, true
}

// text takes a string off the beginning.
func (p *packet) text() (string, bool) {
	n, ok := p.number()
	if !ok || uint64(n) > uint64(len(*p)) {
		return "", false
	}
	s := string((*p)[:n])
	*p = (*p)[n:]
	return s, true
}
