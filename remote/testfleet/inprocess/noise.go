package inprocess

import (
	"io"
	"math/rand/v2"
)

// noise is an endless stream of bytes, the same for the same seed and host.
func (f *Fleet) noise(host int) io.Reader {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(f.seed >> (8 * i))
		key[8+i] = byte(uint64(host) >> (8 * i))
	}
	return rand.NewChaCha8(key)
}
