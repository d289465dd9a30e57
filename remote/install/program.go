package install

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Binary is a genv for one architecture.
type Binary struct {
	Data []byte
	Sum  string // SHA-256, in hexadecimal
	Arch string // as Go names it
}

// maxProgram bounds what is read and uploaded, in bytes.
const maxProgram = 256 << 20

// architecture is that of a machine as uname(1) names it, and by the number in the header of an ELF file.
var architecture = map[string]string{
	"x86_64": "amd64", "amd64": "amd64", "62": "amd64", "aarch64": "arm64", "arm64": "arm64", "183": "arm64",
}

// NewProgram checks that data is a genv for Linux.
func NewProgram(data []byte) (*Binary, error) {
	const (
		header      = 64 // bytes
		elf64Little = "\x7fELF\x02\x01"
	)
	switch {
	case len(data) > maxProgram:
		return nil, fmt.Errorf("%d bytes are too many for genv", len(data))
	case len(data) < header || !strings.HasPrefix(string(data[:16]), elf64Little):
		return nil, errors.New("it is not a program for 64-bit Linux")
	}
	number := binary.LittleEndian.Uint16(data[18:])
	p := &Binary{Data: data, Arch: architecture[strconv.Itoa(int(number))]}
	switch {
	case p.Arch == "":
		return nil, fmt.Errorf("it is for the machine %d, which is neither amd64 nor arm64", number)
	case !bytes.Contains(data, mainPackage()):
		return nil, errors.New("it is not genv")
	}
	p.Sum = sumOf(string(data))
	return p, nil
}

func sumOf(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}

// mainPackage is how genv names its package main in itself. It is put together here, since
// otherwise each program that links this package would contain it.
func mainPackage() []byte {
	return []byte("path\tgithub.com/" + strings.Join([]string{"seed-3119e985", "genv", "cmd", "genv"}, "/") + "\n")
}
