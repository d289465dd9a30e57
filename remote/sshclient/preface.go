package sshclient

import (
	"fmt"
	"io"
	"net"
)

// What OpenSSH accepts before a server's version string (RFC 4253, section 4.2), such
// as what a ProxyCommand prints: so many lines, and so many bytes in each. The SSH
// library only takes lines of 255 bytes.
const (
	maxPrefaceLines = 1024
	maxPrefaceLine  = 8192
)

const versionPrefix = "SSH-"

// skipPreface reads up to and including the beginning of the version string. It reads
// single bytes, as the library does for the version, so that nothing is read ahead.
func skipPreface(r io.Reader) error {
	var one [1]byte
	for range maxPrefaceLines {
		matched := 0
		for length := 0; ; length++ {
			if length > maxPrefaceLine+1 { // with the carriage return
				return fmt.Errorf("a line of more than %d bytes came before the version of an SSH server", maxPrefaceLine)
			}
			if _, err := io.ReadFull(r, one[:]); err != nil {
				return err
			}
			if one[0] == '\n' {
				break
			}
			if matched == length && length < len(versionPrefix) && one[0] == versionPrefix[length] {
				if matched++; matched == len(versionPrefix) {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("%d lines came, and none was the version of an SSH server", maxPrefaceLines)
}

// afterPreface is a connection without what comes before the version string.
type afterPreface struct {
	net.Conn
	skipped bool
	version string // of it, what was read and not returned yet
}

func (a *afterPreface) Read(p []byte) (int, error) {
	if !a.skipped {
		if err := skipPreface(a.Conn); err != nil {
			return 0, err
		}
		a.skipped, a.version = true, versionPrefix
	}
	if a.version != "" {
		n := copy(p, a.version)
		a.version = a.version[n:]
		return n, nil
	}
	return a.Conn.Read(p)
}
