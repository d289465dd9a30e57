package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/snapshot"
)

// inUse is a host that changes as one does that is asked every 10 seconds: once a minute
// its devices are measured again, and in one of 50 cycles a process ends or begins.
func inUse(seed int) *genvhost.Host {
	h := genvhost.New(eightGPUs(seed))
	h.Behave(func(string) genvhost.Behavior {
		if rand.IntN(6) == 0 {
			h.Change(measure)
		}
		if rand.IntN(50) == 0 {
			h.Change(func(s *snapshot.Snapshot) {
				s.Processes[0].PID, s.Processes[0].Start = 9000+s.Processes[0].PID%1000, s.Processes[0].Start+1
			})
		}
		return genvhost.Behavior{}
	})
	return h
}

// measure changes what nvidia-smi measures.
func measure(s *snapshot.Snapshot) {
	for i := range s.Devices {
		percent, celsius, watts := 90+rand.IntN(11), 60+rand.IntN(5), 600+float64(rand.IntN(10_000))/100
		s.Devices[i].Utilization, s.Devices[i].Temperature, s.Devices[i].Power = &percent, &celsius, &watts
	}
}

// viewerRows are what a live view, which fetches the state after each cycle, and a scrape a
// cycle add to the controller's processor time. A cycle is what it is at the default
// interval of 10 seconds, and comes more often.
func (b *bench) viewerRows(ctx context.Context) ([]row, error) {
	config, end, err := b.startServers(ctx, "-changing")
	if err != nil {
		return nil, err
	}
	defer end()
	socket := filepath.Join(filepath.Dir(config), "socket")
	c, err := b.startController(ctx, config, numbered("sim", b.many), time.Second, "--socket", socket)
	if err != nil {
		return nil, err
	}
	defer c.end()
	const n = 10
	measured := func() (time.Duration, error) {
		before, err := cpuOf(c.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		_, errCycles := c.cycles(n)
		after, err := cpuOf(c.cmd.Process.Pid)
		return (after - before) / (n + 1), cmp.Or(errCycles, err)
	}
	var without, ratios []time.Duration // a ratio is per 1e9
	v := &viewer{socket: socket}
	for i := range b.runs + 1 {
		alone, err := measured()
		if err != nil {
			return nil, err
		}
		watched := v.begin(ctx)
		with, err := measured()
		if err := cmp.Or(err, watched()); err != nil {
			return nil, err
		}
		if i > 0 {
			without, ratios = append(without, alone), append(ratios, time.Duration(float64(with)/float64(alone)*1e9))
		}
	}
	detail := fmt.Sprintf("%s a cycle without; %d states fetched, %d scrapes; pairs from %+.1f %% to %+.1f %%",
		brief(quantile(without, 0.5)), v.fetched, v.scraped, percent(slices.Min(ratios)), percent(slices.Max(ratios)))
	return []row{{
		what: fmt.Sprintf("controller: CPU with a live view and a scrape, %d hosts", b.many), figure: fmt.Sprintf("%+.1f %%", percent(quantile(ratios, 0.5))),
		goal: "≤ +5 %", detail: detail,
	}}, nil
}

func percent(ratio time.Duration) float64 { return (ratio.Seconds() - 1) * 100 }

// viewer is a live view and a Prometheus.
type viewer struct {
	socket           string
	fetched, scraped int
}

// begin looks until end is called, which returns why it couldn't.
func (v *viewer) begin(ctx context.Context) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	var failed error
	work.Go(func() { failed = v.look(ctx) })
	return func() error {
		cancel()
		work.Wait()
		return failed
	}
}

func (v *viewer) look(ctx context.Context) error {
	client := live.NewClient(v.socket)
	defer client.Close()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", v.socket)
	}}
	defer transport.CloseIdleConnections()
	var failed error
	cycle := 0
	err := client.Watch(ctx, "", 0, func(m live.Message) {
		if m.Change == nil || failed != nil {
			return
		}
		fleet, err := client.Fleet(ctx)
		if err == nil && fleet.Cycle != cycle {
			cycle = fleet.Cycle
			err = v.scrape(ctx, transport)
		}
		v.fetched++
		failed = err
	})
	if err = cmp.Or(failed, err); errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (v *viewer) scrape(ctx context.Context, transport *http.Transport) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://controller/metrics", http.NoBody)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		v.scraped++
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
