package recording

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
)

// A file is its magic, and then chunks. A chunk is a header of 12 bytes - how long it is, how long
// it is when it isn't compressed, and the CRC-32C of all of that and the data - and the data,
// compressed by zstd. Each chunk is compressed by itself, so a file that was cut is whole until its
// last chunk.
const (
	magic       = "genvrec1"
	chunkHeader = 12
	// maxChunk is the most that a chunk may have, compressed or not: a key frame of 10,000 hosts is
	// written in parts, and a single host has less.
	maxChunk = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type chunkWriter struct {
	w       io.Writer
	encoder *zstd.Encoder
	size    int64
	out     []byte
}

func (c *chunkWriter) write(data []byte) error {
	if len(data) > maxChunk {
		return fmt.Errorf("%d bytes are more than the maximum of %d at a time", len(data), maxChunk)
	}
	c.out = c.out[:0]
	if c.size == 0 {
		c.out = append(c.out, magic...)
	}
	if c.encoder == nil {
		var err error
		if c.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false)); err != nil {
			return err
		}
	}
	at := len(c.out)
	c.out = c.encoder.EncodeAll(data, append(c.out, make([]byte, chunkHeader)...))
	header := c.out[at:]
	binary.LittleEndian.PutUint32(header, uint32(len(header)-chunkHeader))
	binary.LittleEndian.PutUint32(header[4:], uint32(len(data)))
	binary.LittleEndian.PutUint32(header[8:], sumOf(header))
	n, err := c.w.Write(c.out)
	c.size += int64(n)
	return err
}

// sumOf is the checksum of a chunk.
func sumOf(chunk []byte) uint32 {
	return crc32.Update(crc32.Checksum(chunk[:8], castagnoli), castagnoli, chunk[chunkHeader:])
}

func (c *chunkWriter) close() error {
	if c.encoder == nil {
		return nil
	}
	return c.encoder.Close()
}

// ErrCut says that a file ends in the middle, as after kill -9 or on a full disk. All before that
// was read.
var ErrCut = errors.New("the file was cut")

// ErrDamaged says that a part of a file is not what was written.
var ErrDamaged = errors.New("the file is damaged")

// errFormat says that a file is none of this package, or of a later version.
var errFormat = errors.New("this is not a recording, or one of a later version of genv")

type chunkReader struct {
	r       *bufio.Reader
	decoder *zstd.Decoder
	offset  int64 // of the next chunk
	data    bytes.Buffer
	out     []byte
}

func newChunkReader(r io.Reader) (*chunkReader, error) {
	c := &chunkReader{r: bufio.NewReaderSize(r, 1<<16), offset: int64(len(magic))}
	var start [len(magic)]byte
	if n, err := io.ReadFull(c.r, start[:]); err != nil || string(start[:]) != magic {
		if n < len(magic) && magic[:n] == string(start[:n]) {
			return nil, fmt.Errorf("%w at its beginning", ErrCut)
		}
		return nil, errFormat
	}
	var err error
	c.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxChunk), zstd.WithDecoderLowmem(true))
	return c, err
}

// next returns what a chunk has, until it is called again. io.EOF comes where a chunk could begin.
func (c *chunkReader) next() ([]byte, error) {
	var header [chunkHeader]byte
	switch n, err := io.ReadFull(c.r, header[:]); {
	case n == 0 && errors.Is(err, io.EOF):
		return nil, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%w at byte %d", ErrCut, c.offset)
	case err != nil:
		return nil, err
	}
	length, plain := binary.LittleEndian.Uint32(header[:]), binary.LittleEndian.Uint32(header[4:])
	if length > maxChunk || plain > maxChunk {
		return nil, fmt.Errorf("%w at byte %d: a part has %d bytes", ErrDamaged, c.offset, max(length, plain))
	}
	c.data.Reset()
	c.data.Write(header[:])
	switch n, err := io.CopyN(&c.data, c.r, int64(length)); { // it grows only with what is there
	case errors.Is(err, io.EOF) || err == nil && n < int64(length):
		return nil, fmt.Errorf("%w at byte %d", ErrCut, c.offset)
	case err != nil:
		return nil, err
	}
	if sumOf(c.data.Bytes()) != binary.LittleEndian.Uint32(header[8:]) {
		return nil, fmt.Errorf("%w at byte %d", ErrDamaged, c.offset)
	}
	out, err := c.decoder.DecodeAll(c.data.Bytes()[chunkHeader:], c.out[:0])
	if err == nil && len(out) != int(plain) {
		err = fmt.Errorf("it has %d bytes", len(out))
	}
	if err != nil {
		return nil, fmt.Errorf("%w at byte %d: %w", ErrDamaged, c.offset, err)
	}
	c.out = out
	c.offset += chunkHeader + int64(length)
	return out, nil
}

func (c *chunkReader) close() { c.decoder.Close() }
