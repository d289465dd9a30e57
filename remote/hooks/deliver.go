package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	queueLength = 64                     // events waiting for a slow hook
	backoff     = 500 * time.Millisecond // before the first retry; it doubles
)

// Post is an event for a hook, and its delivery's result.
type Post struct {
	Event policy.HookEvent
	JSON  []byte
	Chat  []byte   // message for Slack
	IDs   []string // of its findings

	To      string // program, or address without parts that may be secret
	Channel audit.Channel
	Err     error // nil if delivered
}

// Queue sends events to hooks. It is safe for concurrent use.
type Queue struct {
	done    func(Post)
	hooks   []policy.Hook
	posts   []chan Post // waiting, by hook
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// NewQueue starts a Queue, to be closed. done is called concurrently, for each event of each hook.
func NewQueue(hooks []policy.Hook, done func(Post)) *Queue {
	ctx, cancel := context.WithCancel(context.Background())
	q := &Queue{done: done, hooks: hooks, cancel: cancel}
	for _, h := range hooks {
		posts := make(chan Post, queueLength)
		q.posts = append(q.posts, posts)
		q.running.Go(func() { q.work(ctx, h, posts) })
	}
	return q
}

// Send queues an event for the hooks that want it, without waiting.
func (q *Queue) Send(p Post) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, h := range q.hooks {
		if q.closed || !slices.Contains(h.On, p.Event) {
			continue
		}
		one := p.to(h)
		select {
		case q.posts[i] <- one:
		default:
			one.Err = fmt.Errorf("hook %s: it is too slow: an event %q is dropped, since %d wait already", one.To,
				p.Event, queueLength)
			q.done(one)
		}
	}
}

func (p Post) to(h policy.Hook) Post {
	if p.To, p.Channel = nameOf(h), audit.ChannelCommand; h.Webhook != "" {
		p.Channel = audit.ChannelWebhook
	}
	return p
}

// Close waits until queued events are sent or dropped by the timeout.
func (q *Queue) Close(timeout time.Duration) {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		for _, posts := range q.posts {
			close(posts)
		}
	}
	q.mu.Unlock()
	timer := time.AfterFunc(timeout, q.cancel)
	defer timer.Stop()
	q.running.Wait()
	q.cancel()
}

func (q *Queue) work(ctx context.Context, h policy.Hook, posts <-chan Post) {
	for p := range posts {
		var err error
		for try, pause := 0, backoff; ; try, pause = try+1, 2*pause {
			var final bool
			if final, err = attempt(ctx, h, p); err == nil || final || try >= h.Retries || ctx.Err() != nil ||
				!remote.Sleep(ctx, pause) {
				break
			}
		}
		if err != nil {
			p.Err = fmt.Errorf("hook %s: an event %q did not arrive: %w", p.To, p.Event, err)
		}
		q.done(p)
	}
}

// nameOf omits parts of an address that may be secret.
func nameOf(h policy.Hook) string {
	if len(h.Command) > 0 {
		return h.Command[0]
	}
	u, err := url.Parse(h.Webhook)
	if err != nil || u.Host == "" {
		return "webhook"
	}
	return u.Scheme + "://" + u.Host
}

// attempt sends an event once. final: a retry would not help.
func attempt(ctx context.Context, h policy.Hook, p Post) (final bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	if len(h.Command) == 0 {
		return post(ctx, h, p)
	}
	err = notify.RunProgram(ctx, h.Command, p.JSON, "GENV_EVENT="+string(p.Event))
	switch {
	case err == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("it did not end within %s and was killed", h.Timeout)
	case ctx.Err() != nil:
		err = errors.New("it was killed, since genv ends or its hooks have changed")
	}
	return false, err
}

// client follows no redirects: the administrator decides where events go.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// post sends the event to the address. Redirects and client errors are final.
func post(ctx context.Context, h policy.Hook, p Post) (final bool, err error) {
	body := p.JSON
	if h.Slack {
		body = p.Chat
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Webhook, bytes.NewReader(body))
	if err != nil {
		return true, errors.New("the address cannot be used") // the error would show it
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "genv")
	answer, err := client.Do(request)
	if err != nil {
		if shown, ok := errors.AsType[*url.Error](err); ok {
			err = shown.Err // without the address, which may hold a secret
		}
		return false, text.Late(err, h.Timeout)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be reused
	code := answer.StatusCode
	if code < 300 {
		return false, nil
	}
	return code < 500 && code != http.StatusTooManyRequests, fmt.Errorf("the server answered %s", answer.Status)
}

var errNoEvents = errors.New("its `events:` are empty, so that it gets none")

// SendTest sends each hook its first event once, like a Queue, about a user and marked as a test. Results are in the
// order of the hooks.
func SendTest(ctx context.Context, hooks []policy.Hook, user snapshot.Username, now time.Time) []Post {
	posts := make([]Post, len(hooks))
	var running sync.WaitGroup
	for i, h := range hooks {
		posts[i] = Post{Err: errNoEvents}.to(h)
		if len(h.On) == 0 {
			continue
		}
		running.Go(func() {
			p, err := Notice{Event: h.On[0], Test: true, Findings: []NoticedFinding{{ // the texts say that it is a test
				Finding: enforce.Finding{ID: "test", User: user, Since: now.UTC()}, Line: notify.TestText,
				Advice: "There is nothing to do.",
			}}}.at(now)
			if err == nil {
				_, err = attempt(ctx, h, p)
			}
			posts[i] = p.to(h)
			posts[i].Err = err
		})
	}
	running.Wait()
	return posts
}
