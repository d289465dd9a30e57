package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/enforce/policy"
)

// attempt sends an event once. final says that another try would not help.
func attempt(ctx context.Context, h policy.Hook, e Event) (final bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	if len(h.Command) > 0 {
		return false, run(ctx, h, e)
	}
	return post(ctx, h, e)
}

// run runs the program with the event on its stdin. Its own children end with
// it when the time is over.
func run(ctx context.Context, h policy.Hook, e Event) error {
	cmd := exec.CommandContext(ctx, h.Command[0], h.Command[1:]...)
	cmd.Stdin = bytes.NewReader(e.JSON)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "GENV_EVENT=" + string(e.Name)}
	output := &head{limit: 500}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it succeeded, although a child still has its output open
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("it did not end within %s and was killed", h.Timeout)
	case ctx.Err() != nil:
		return errors.New("it was killed, since genv ends or its hooks have changed")
	case output.String() != "":
		return fmt.Errorf("%w: %s", err, output)
	}
	return err
}

// client follows no redirect: the administrator decides where events go.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// post sends the event to the address. After a redirect or a client error, another try
// would fail again.
func post(ctx context.Context, h policy.Hook, e Event) (final bool, err error) {
	body := e.JSON
	if h.Slack {
		body = e.Slack
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Webhook, bytes.NewReader(body))
	if err != nil {
		return true, errors.New("the address cannot be used") // the error would show it
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "genv")
	answer, err := client.Do(request)
	if err != nil {
		var shown *url.Error
		if errors.As(err, &shown) {
			err = shown.Err // without the address, which may hold a secret
		}
		return false, err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be used again
	code := answer.StatusCode
	if code < 300 {
		return false, nil
	}
	return code < 500 && code != http.StatusTooManyRequests, fmt.Errorf("the server answered %s", answer.Status)
}

// head keeps the beginning of what is written.
type head struct {
	b     strings.Builder
	limit int
}

func (h *head) Write(p []byte) (int, error) {
	h.b.Write(p[:min(len(p), max(0, h.limit-h.b.Len()))])
	return len(p), nil
}

func (h *head) String() string { return strings.Join(strings.Fields(h.b.String()), " ") }
