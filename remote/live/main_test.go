package live_test

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/live"
)

// A server waits for half a second after a request that was too long.
func TestMain(m *testing.M) {
	if path := os.Getenv(sendTo); path != "" {
		if _, err := live.SendAction(context.Background(), path, hold); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
