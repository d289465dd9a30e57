package install_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/install"
)

func program(data []byte, arch string) *install.Program {
	sum := sha256.Sum256(data)
	return &install.Program{Data: data, Sum: hex.EncodeToString(sum[:]), Arch: arch}
}

// elf is the header of a program, and the words by which genv is recognised.
func elf(machine byte, words string) []byte {
	header := make([]byte, 64)
	copy(header, "\x7fELF\x02\x01\x01")
	header[18] = machine
	return append(header, words...)
}

const words = "path\tgithub.com/seed-3119e985/genv/cmd/genv\n"

func TestNewProgram(t *testing.T) {
	for name, tt := range map[string]struct {
		data       []byte
		arch, want string
	}{
		"amd64":        {elf(62, words), "amd64", ""},
		"arm64":        {elf(183, words), "arm64", ""},
		"riscv":        {elf(243, words), "", "machine 243"},
		"other":        {elf(62, "busybox"), "", "it is not genv"},
		"genv-remote":  {elf(62, strings.Replace(words, "cmd/genv", "cmd/genv-remote", 1)), "", "it is not genv"},
		"another main": {elf(62, strings.Replace(words, "cmd/genv", "cmd/genv-demo", 1)), "", "it is not genv"},
		"script":       {[]byte("#!/bin/sh\n" + strings.Repeat("#", 100) + words), "", "not a program for 64-bit Linux"},
		"empty":        {nil, "", "not a program for 64-bit Linux"},
		"32 bit":       {append([]byte("\x7fELF\x01\x01"), make([]byte, 100)...), "", "not a program for 64-bit Linux"},
		"a page of it": {elf(62, words)[:40], "", "not a program for 64-bit Linux"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := install.NewProgram(tt.data)
			if tt.want != "" {
				require.ErrorContains(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, program(tt.data, tt.arch), p)
		})
	}
	own, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	_, err = install.NewProgram(append(own[:64:64], words...))
	require.NoError(t, err, "a program for %s", runtime.GOARCH)
}

func TestOneProgramForAnArchitecture(t *testing.T) {
	programs := install.Programs{}
	require.NoError(t, programs.Add(program([]byte("a"), "amd64")))
	require.NoError(t, programs.Add(program([]byte("b"), "arm64")))
	require.NoError(t, programs.Add(program([]byte("a"), "amd64")), "the same again")
	require.ErrorContains(t, programs.Add(program([]byte("c"), "amd64")), "two different programs for amd64")
}
