package agent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/local/asked"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot/local"
)

// grave is a Backend whose orders take until they are released.
type grave struct {
	release chan struct{}

	mu              sync.Mutex
	begun, finished int
}

func (g *grave) Snapshot(context.Context, local.Age) ([]byte, error) {
	return []byte(`{"n":1}`), nil
}

func (g *grave) Execute(context.Context, order.Order, asked.Authority) (agent.Execution, error) {
	g.count(&g.begun)
	<-g.release
	g.count(&g.finished)
	return agent.Execution{Outcomes: []order.Outcome{}}, nil
}

func (g *grave) Notify(m []agent.Message) ([]agent.Receipt, error) {
	return make([]agent.Receipt, len(m)), nil
}

func (g *grave) count(n *int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*n++
}

const noOrder = `{"report":{"terminate":[],"detach":{}}}`

// join opens a stream to a server of the backend.
func join(t *testing.T, g *grave, greeting frame.Greeting) (c *agent.Stream, hangUp func() error) {
	server := &agent.Responder{Token: "t", Greeting: greeting, Handler: (&agent.Answers{Backend: g}).Handle, Idle: time.Minute}
	in, out, ended := both(t.Context(), server)
	c, err := agent.OpenStream(t.Context(), in, out, "t")
	require.NoError(t, err)
	return c, func() error {
		_ = out.Close()
		err := <-ended
		_ = in.Close()
		return err
	}
}

// TestSideBySide: orders that are carried out delay no other request, and no more than 16 are.
func TestSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &grave{release: make(chan struct{})}
		c, hangUp := join(t, g, agent.NewGreeting("v"))
		var orders sync.WaitGroup
		for range 16 {
			orders.Go(func() {
				_, err := c.Call(t.Context(), agent.RequestExecute, []byte(noOrder))
				require.NoError(t, err)
			})
		}
		synctest.Wait()
		require.Equal(t, 16, g.begun)
		_, err := c.Call(t.Context(), agent.RequestExecute, []byte(noOrder))
		require.ErrorIs(t, err, agent.ErrRefused)
		require.ErrorContains(t, err, "16 orders are under way")
		for name, body := range map[string]string{agent.RequestSnapshot: "{}", agent.RequestNotify: "{}", agent.RequestPing: "x"} {
			_, err := c.Call(t.Context(), name, []byte(body))
			require.NoError(t, err, name)
		}
		time.Sleep(time.Hour) // much longer than Idle: the controller waits for orders
		close(g.release)
		orders.Wait()
		require.NoError(t, hangUp())
	})
}

// TestOrdersOutliveTheController: an order that was begun is carried out to its end, and Serve returns after it.
func TestOrdersOutliveTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &grave{release: make(chan struct{})}
		c, hangUp := join(t, g, agent.NewGreeting("v"))
		called := make(chan error, 1)
		go func() {
			_, err := c.Call(t.Context(), agent.RequestExecute, []byte(noOrder))
			called <- err
		}()
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- hangUp() }()
		time.Sleep(time.Hour)
		require.Empty(t, ended)
		close(g.release)
		require.NoError(t, <-ended)
		require.Equal(t, 1, g.finished)
		require.NoError(t, <-called, "it hung up on one side only")
	})
}

// TestAbandonedCalls: a call that is cancelled leaves the others alone; one whose
// deadline passes breaks the stream, and ends them.
func TestAbandonedCalls(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late %v", late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &grave{release: make(chan struct{})}
				c, hangUp := join(t, g, agent.NewGreeting("v"))
				first, second := make(chan error, 1), make(chan error, 1)
				call := func(ctx context.Context, done chan<- error) {
					_, err := c.Call(ctx, agent.RequestExecute, []byte(noOrder))
					done <- err
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				go call(t.Context(), first)
				go call(ctx, second)
				synctest.Wait()
				if !late {
					cancel()
				}
				require.Error(t, <-second)
				if late {
					require.ErrorIs(t, <-first, context.DeadlineExceeded)
					close(g.release)
				} else {
					close(g.release)
					require.NoError(t, <-first)
					_, err := c.Call(t.Context(), agent.RequestPing, nil)
					require.NoError(t, err)
				}
				if err := hangUp(); err != nil {
					require.False(t, errors.Is(err, frame.ErrProtocol), err)
				}
			})
		})
	}
}
