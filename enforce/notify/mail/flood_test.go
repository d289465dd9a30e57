package mail_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/enforce/notify/texts"
	"github.com/seed-3119e985/genv/enforce/policy"
)

// A server, or somebody on the way to it, answers without an end.
func TestAServerThatNeverEndsALine(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	written := make(chan int64, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			written <- 0
			return
		}
		n, _ := io.Copy(conn, io.LimitReader(zeros{}, 1<<30)) // until the other end closes
		_ = conn.Close()
		written <- n
	}()
	set := settings(&mailtest.Server{Address: listener.Addr().String()})
	set.TLS = policy.NoTLS
	o := open(set, func(o *mail.Options) { o.GiveUp = time.Nanosecond })
	o.Send(mail.Letter{User: "alice", Items: []texts.Finding{{Host: "a", Text: "x"}}})
	sent := <-written
	require.NoError(t, listener.Close())
	o.Close(time.Second)
	require.Less(t, sent, int64(64<<20))
	require.Len(t, o.results, 1)
	require.ErrorContains(t, o.results[0].Err, "more than a mail server should")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
