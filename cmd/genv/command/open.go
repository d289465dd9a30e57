package command

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// OpenAtOnce opens a file or a pipe, such as that of <(…). It doesn't wait for a writer:
// a FIFO without one is empty.
func OpenAtOnce(path string) (io.ReadCloser, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}
