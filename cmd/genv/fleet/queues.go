package fleet

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// queues are one wait, with one id, in several hosts' queues. Each offer is taken by pause, or withdrawn.
type queues struct {
	offers chan *offer
	hosts  sync.WaitGroup // goroutines, one per host

	mu     sync.Mutex
	places map[string]service.QueuePlace // by host; only hosts with the wait in their queue
}

type offer = remote.Result[[]snapshot.DeviceIndex] // GPUs that a host keeps for this user

const (
	keptFor         = time.Minute     // how long a host keeps an offer
	withdrawnWithin = 3 * time.Second // how long it has to withdraw one
)

// wait waits on hosts for n GPUs of those that suit (nil for any), as this user and not as root. If an offer isn't
// used, it waits on the host again after a time.
func (f *fleet) wait(
	ctx context.Context, n int, suits map[string][]snapshot.DeviceIndex, again time.Duration,
) *queues {
	q := &queues{offers: make(chan *offer), places: make(map[string]service.QueuePlace)}
	args := []string{"usage", "wait", "--gpus", strconv.Itoa(n), "--id", rand.Text()}
	for _, host := range f.Hosts {
		own := slices.Clone(args)
		if list := suits[host.Name]; list != nil {
			own = append(own, "--index", text.JoinIndices(list))
		} else if suits != nil {
			continue
		}
		q.hosts.Go(func() { q.wait(ctx, f, host, own, again) })
	}
	return q
}

// wait waits again after each offer. It ends if the host has no queue.
func (q *queues) wait(ctx context.Context, f *fleet, host remote.Host, args []string, again time.Duration) {
	for known := false; q.waitOnce(ctx, f, host, args) || known; known = true {
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

// waitOnce waits until a host's offer is taken or expires, or the connection ends. It reports whether the host has a
// queue.
func (q *queues) waitOnce(ctx context.Context, f *fleet, host remote.Host, args []string) (queued bool) {
	as := host
	as.NoSudo = true
	session, err := f.client.Start(ctx, as, as.Genv(args...))
	if err != nil {
		return false
	}
	defer session.Close()
	withdraw := func() {
		_, _ = session.Stdin.Write([]byte("withdraw\n")) // ends its command
		time.AfterFunc(withdrawnWithin, session.Close)
	}
	stop := context.AfterFunc(ctx, withdraw)
	defer stop()
	for lines := bufio.NewScanner(session.Stdout); lines.Scan(); { // a line over 64 KiB ends it
		var place service.QueuePlace
		if json.Unmarshal(lines.Bytes(), &place) != nil {
			break
		}
		queued = true
		if q.put(host.Name, place, place.Offered == nil); place.Offered == nil {
			continue
		}
		stop()
		select {
		case q.offers <- &offer{Host: host, Value: place.Offered}:
			return true
		case <-time.After(keptFor):
			return true
		case <-ctx.Done():
			withdraw()
		}
	}
	q.put(host.Name, service.QueuePlace{}, false)
	return queued
}

func (q *queues) put(host string, place service.QueuePlace, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if delete(q.places, host); waits {
		q.places[host] = place
	}
}

// pause shows the places in the queues, or note, until it takes an offer; nil after length or if ctx ends.
func (q *queues) pause(ctx context.Context, f *fleet, length time.Duration, note string) *offer {
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
		case taken := <-q.offers:
			return taken
		case <-ctx.Done():
		case <-over:
		}
		return nil
	}
}

// text is as in "Waiting: place 1 of 2 on gpu-[01-03]; 4 of 4 on gpu-04"; empty for no place.
func (q *queues) text() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	hosts := make(map[string][]string)
	for name, p := range q.places {
		at := fmt.Sprintf("%d of %d", p.Number, p.People)
		hosts[at] = append(hosts[at], name)
	}
	if len(hosts) == 0 {
		return ""
	}
	var places []string
	shortFirst := func(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) }
	for _, at := range slices.SortedFunc(maps.Keys(hosts), shortFirst) {
		slices.Sort(hosts[at])
		places = append(places, at+" on "+render.Hosts(hosts[at]))
	}
	return "Waiting: place " + strings.Join(places, "; ")
}

func (q *queues) has(host string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, waits := q.places[host]
	return waits
}
