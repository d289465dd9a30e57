package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// queues are one wait, with one id, in the queues of hosts. The first host that keeps GPUs for this user is the one:
// whoever takes that ends the others with the context.
type queues struct {
	kept chan struct{} // closed when a host keeps GPUs for this user for a minute

	mu     sync.Mutex
	places map[string]service.Place // on the hosts that have the wait in their queue
	offer  *remote.Host             // that host; nil for none
}

// wait waits on hosts for so many GPUs, of those that suit (nil for any), as this user and not as root.
func (f *fleet) wait(ctx context.Context, n int, suits map[string][]snapshot.DeviceIndex) *queues {
	q := &queues{kept: make(chan struct{}), places: make(map[string]service.Place)}
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
		if q.put(&host, place, err == nil); err != nil || place.Offered != nil {
			return
		}
	}
}

// put notes the place on a host, or that it has none.
func (q *queues) put(host *remote.Host, place service.Place, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if delete(q.places, host.Name); waits {
		q.places[host.Name] = place
	}
	if waits && place.Offered != nil && q.offer == nil {
		q.offer = host
		close(q.kept)
	}
}

// pause says how far from enough the hosts are, or the places in their queues, until a time is over, a host keeps GPUs
// for this user, or ctx ends.
func (q *queues) pause(ctx context.Context, f *fleet, length time.Duration, note string) {
	over, again := time.After(length), time.NewTicker(time.Second)
	defer again.Stop()
	for {
		if places := q.text(); places != "" {
			f.progress.Waiting(places, f.Now())
		} else if note != "" {
			f.progress.Note(note)
		}
		select {
		case <-again.C:
			continue
		case <-ctx.Done():
		case <-over:
		case <-q.kept:
		}
		return
	}
}

// text are the places, as in "Waiting: place 1 of 2 on gpu-[01-03]; 4 of 4 on gpu-04"; empty for none.
func (q *queues) text() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	hosts := make(map[string][]string)
	for name, p := range q.places {
		if p.Offered == nil {
			at := fmt.Sprintf("%d of %d", p.Number, p.People)
			hosts[at] = append(hosts[at], name)
		}
	}
	line := ""
	shortFirst := func(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) }
	for _, at := range slices.SortedFunc(maps.Keys(hosts), shortFirst) {
		slices.Sort(hosts[at])
		line += "; " + at + " on " + render.Hosts(hosts[at])
	}
	if line == "" {
		return ""
	}
	return "Waiting: place " + line[2:]
}

// has says whether a host has the wait in its queue.
func (q *queues) has(host string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, waits := q.places[host]
	return waits
}

// offered is the host that keeps GPUs for this user, and these; nil for none.
func (q *queues) offered() (*remote.Host, []snapshot.DeviceIndex) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.offer == nil {
		return nil, nil
	}
	return q.offer, q.places[q.offer.Name].Offered
}
