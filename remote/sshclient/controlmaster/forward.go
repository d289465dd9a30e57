package controlmaster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// forward is a connection from the host to somewhere else.
type forward struct {
	master  *Master
	conn    *net.UnixConn // its end ends the forwarding
	in, out *os.File
	to      address
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// DialContext connects from the host to an address, as ssh -W.
func (m *Master) DialContext(ctx context.Context, host string, port int) (net.Conn, error) {
	theirIn, in, err1 := os.Pipe()
	out, theirOut, err2 := os.Pipe()
	defer theirIn.Close()
	defer theirOut.Close()
	conn, err := dial(ctx, m.path)
	f := &forward{master: m, conn: conn, in: in, out: out, to: address(fmt.Sprintf("%s:%d", host, port))}
	if err = errors.Join(err, err1, err2); err == nil && !m.keep(f) {
		err = m.ended
	}
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		err = request(conn, message(msgNewForward, uint32(0), "", host, uint32(port)), theirIn, theirOut)
		if !stop() {
			err = errors.Join(err, context.Cause(ctx))
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (f *forward) Read(p []byte) (int, error)  { return f.out.Read(p) }
func (f *forward) Write(p []byte) (int, error) { return f.in.Write(p) }
func (f *forward) LocalAddr() net.Addr         { return address("") }
func (f *forward) RemoteAddr() net.Addr        { return f.to }

func (f *forward) SetDeadline(t time.Time) error {
	return errors.Join(f.in.SetDeadline(t), f.out.SetDeadline(t))
}
func (f *forward) SetReadDeadline(t time.Time) error  { return f.out.SetReadDeadline(t) }
func (f *forward) SetWriteDeadline(t time.Time) error { return f.in.SetWriteDeadline(t) }

func (f *forward) Close() error {
	f.master.forget(f)
	if f.conn != nil {
		_ = f.conn.Close()
	}
	return errors.Join(f.in.Close(), f.out.Close())
}
