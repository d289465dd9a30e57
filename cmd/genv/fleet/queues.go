package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// queues are one wait, with one id, in the queues of hosts. The first host that keeps GPUs for this user is the one:
// whoever takes that ends the others with the context.
type queues struct {
	offers chan queueOffer

	mu     sync.Mutex
	joined map[string]bool // hosts that have the wait in their queue
}

// queueOffer is GPUs of a host that are kept for this user for a minute.
type queueOffer struct {
	host remote.Host
	gpus []snapshot.DeviceIndex
}

// wait waits on hosts for so many GPUs, of those that suit (nil for any), as this user and not as root.
func (f *fleet) wait(ctx context.Context, n int, suits map[string][]snapshot.DeviceIndex) *queues {
	q := &queues{offers: make(chan queueOffer, len(f.Hosts)), joined: make(map[string]bool)}
	args := []string{"usage", "wait", "--gpus", strconv.Itoa(n), "--id", rand.Text()}
	for _, host := range f.Hosts {
		own := slices.Clone(args)
		if list := suits[host.Name]; list != nil {
			own = append(own, "--index", text.JoinIndices(list))
		} else if suits != nil {
			continue
		}
		go q.wait(ctx, f, host, own)
	}
	return q
}

// wait waits on one host. One without a queue is left to others.
func (q *queues) wait(ctx context.Context, f *fleet, host remote.Host, args []string) {
	as := host
	as.NoSudo = true
	session, err := f.client.Start(ctx, as, as.Genv(args...))
	if err != nil {
		return
	}
	defer session.Close()
	defer context.AfterFunc(ctx, session.Close)()
	for lines := json.NewDecoder(session.Stdout); ; {
		var place service.Place
		err := lines.Decode(&place)
		q.mu.Lock()
		q.joined[host.Name] = err == nil
		q.mu.Unlock()
		if err != nil {
			return
		}
		if place.Offered != nil {
			q.offers <- queueOffer{host, place.Offered}
			return
		}
	}
}

// without are the hosts without a queue.
func (q *queues) without(hosts []remote.Host) []remote.Host {
	return slices.DeleteFunc(slices.Clone(hosts), func(h remote.Host) bool { return q.has(snapshot.Hostname(h.Name)) })
}

// has says whether a host has the wait in its queue. A nil queues has none.
func (q *queues) has(host snapshot.Hostname) bool {
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.joined[string(host)]
}

// offered is what a host keeps for this user; nil for nothing.
func (q *queues) offered() *queueOffer {
	if q == nil {
		return nil
	}
	select {
	case o := <-q.offers:
		return &o
	default:
		return nil
	}
}
