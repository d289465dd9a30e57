package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// ListenTCP opens a port; 0 for any free one.
func ListenTCP(ctx context.Context, address string, port int) (net.Listener, error) {
	where := net.JoinHostPort(address, strconv.Itoa(port))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", where)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("another program serves on %s: end it (`ss -ltnp 'sport = :%d'` shows which one), or choose another port", where, port)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is not an address of this machine: choose one of those that `ip address` lists", address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("only root may serve on port %d: choose one above 1023", port)
	case err != nil:
		return nil, fmt.Errorf("serve on %s: %w", where, err)
	}
	return listener, nil
}
