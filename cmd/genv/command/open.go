package command

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// OpenAtOnce opens a file or a pipe, such as that of <(…). A FIFO to which
// nobody writes is empty; it does not hold the program.
func OpenAtOnce(path string) (io.ReadCloser, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}
