package listeners_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	feed := live.NewFeed(live.Options{Now: time.Now})
	actions := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, known := socket.PeerOf(r.Context())
		require.True(t, known)
		require.NoError(t, json.NewEncoder(w).Encode(peer))
	})
	config := listeners.Endpoints{Socket: listeners.Socket{Path: path, Required: true}}
	open := proctest.Try(listeners.Open(t.Context(), config, listeners.Content{Feed: feed, Actions: actions}, zerolog.Nop())).OK(t)
	require.Equal(t, []string{path}, open.Addresses)
	viewer := live.NewClient(path)
	fleet := proctest.Try(viewer.Fleet(t.Context())).OK(t)
	require.Equal(t, "genv.live.fleet/1", fleet.Schema)
	viewer.Close()

	conn := proctest.Try(net.Dial("unix", path)).OK(t)
	defer conn.Close()
	proctest.Try(io.WriteString(conn, "POST /api/v1/actions HTTP/1.1\r\nHost: controller\r\nConnection: close\r\n\r\n")).OK(t)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	var peer socket.Peer
	require.NoError(t, json.NewDecoder(response.Body).Decode(&peer))
	require.EqualValues(t, os.Getpid(), peer.PID)
	require.EqualValues(t, os.Geteuid(), peer.UID)

	_, err = listeners.Open(t.Context(), config, listeners.Content{Feed: feed}, zerolog.Nop())
	require.ErrorIs(t, err, socket.ErrInUse, "a living controller has it")
	config.Socket.Required = false
	without, err := listeners.Open(t.Context(), config, listeners.Content{Feed: feed}, zerolog.Nop())
	require.NoError(t, err, "the default one is no reason not to enforce")
	require.Empty(t, without.Addresses)
	without.Close()
	open.Close()
	require.NoFileExists(t, path)
}

// inUse is a host with 8 GPUs, to each of which an environment is attached, with two processes.
func inUse(host int) snapshot.Host {
	s := &snapshot.Snapshot{}
	for i := range 8 {
		index, uid := snapshot.DeviceIndex(i), snapshot.UID(1000+(host+i)%50)
		user, eid := snapshot.Username(fmt.Sprintf("user%d", uid)), snapshot.EnvID(fmt.Sprint(2000+i))
		percent, celsius, watts := 97, 60, 612.34
		s.Environments = append(s.Environments, snapshot.Environment{EID: eid, UID: uid, Username: user})
		s.Devices = append(s.Devices, snapshot.Device{
			Index: index, UUID: snapshot.GPUUUID(fmt.Sprintf("GPU-%08d-%d", host, i)), Name: "NVIDIA H100 80GB HBM3",
			TotalMemory: snapshot.MiB(81559), UsedMemory: snapshot.MiB(60000), Utilization: &percent, Temperature: &celsius, Power: &watts,
			Attachments: []snapshot.Attachment{{EID: eid, Time: snapshot.DateOf(time.Unix(1_800_000_000, 0))}},
		})
		for k := range 2 {
			s.Processes = append(s.Processes, snapshot.Process{
				PID: snapshot.PID(5000 + 10*i + k), Start: 100_000, UID: &uid, Username: user, EID: eid, Name: "python", Command: "python train.py --config large.yaml",
				Usage: []snapshot.DeviceUsage{{Index: index, Memory: snapshot.MiB(30000)}},
			})
		}
	}
	return snapshot.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%04d", host)), Snapshot: s}
}

// BenchmarkViewers is what a live view that fetches the state after each cycle and a scrape cost the controller,
// without the kernel's part, on 1,000 hosts of which 187 change in a cycle: once a minute each one measures its
// devices, and in one of 50 cycles its processes change. own-CPU is without them, a cycle's part in it.
func BenchmarkViewers(b *testing.B) {
	feed, counters := live.NewFeed(live.Options{Now: time.Now, Interval: 10 * time.Second, Enforcing: true}), metrics.NewCounters(time.Now(), 10*time.Second)
	mux := http.NewServeMux()
	mux.Handle("/", live.NewHandler(feed))
	(&metrics.Exporter{Feed: feed, Counters: counters, Now: time.Now}).Mount(mux, false)
	round := &controller.Round{Run: "r"}
	for i := range 1000 {
		round.Cluster.Hosts = append(round.Cluster.Hosts, inUse(i))
	}
	changed := 0
	next := func() {
		round.Number, round.Start = round.Number+1, time.Now()
		for range 187 {
			changed = (changed + 1) % 1000
			same := *round.Cluster.Hosts[changed].Snapshot
			round.Cluster.Hosts[changed].Snapshot = &same
		}
		feed.Consume(round.AtEnd(), nil)
		counters.Consume(round.AtEnd(), nil)
	}
	etag, viewed := "", 0
	get := func(path string) *discarded {
		w := &discarded{header: make(http.Header)}
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		return w
	}
	for name, look := range map[string]func(){
		"none": func() {},
		"view": func() {
			w := get("/api/v1/fleet?since=" + etag)
			etag, viewed = w.header.Get("ETag"), w.bytes
		},
		"scrape": func() { viewed = get("/metrics").bytes },
	} {
		b.Run(name, func(b *testing.B) {
			next()
			look()
			begun := cpu(b)
			for range b.N {
				next()
				look()
			}
			b.ReportMetric(float64((cpu(b)-begun).Microseconds())/float64(b.N), "CPU-µs/cycle")
			b.ReportMetric(float64(viewed), "bytes")
			b.ReportAllocs()
		})
	}
}

func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// discarded is an http.ResponseWriter of which only the size is kept.
type discarded struct {
	header http.Header
	bytes  int
}

func (d *discarded) Header() http.Header { return d.header }
func (d *discarded) WriteHeader(int)     {}
func (d *discarded) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}
