package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// The simulated fleet.
const (
	simHosts   = 1000
	simDevices = 8
	simUsers   = 300
	simLook    = 30 * time.Minute
	simWrite   = 12 * time.Hour
	simDays    = 2 * 365
)

// simulation is a fleet on which users attach devices for half an hour to a day, and then
// leave them for up to four hours.
type simulation struct {
	random   *rand.Rand
	account  *usage.Meter
	cluster  snapshot.Cluster
	until    [simHosts][simDevices]time.Time // of a session, or of the pause after it
	session  [simHosts][simDevices]int       // of a user; -1 for a pause
	since    [simHosts][simDevices]time.Time
	eid      [simHosts][simDevices]int
	attached [simUsers]time.Duration // from the sessions alone
	sessions int
}

func newSimulation() *simulation {
	s := &simulation{random: rand.New(rand.NewPCG(1, 1)), account: usage.NewMeter(time.UTC)}
	for h := range simHosts {
		s.cluster.Hosts = append(s.cluster.Hosts, snapshot.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%04d", h))})
		for d := range simDevices {
			s.session[h][d] = -1
		}
	}
	return s
}

// advance lets sessions begin and end until now.
func (s *simulation) advance(now time.Time) {
	for h := range simHosts {
		changed := s.cluster.Hosts[h].Snapshot == nil
		for d := range simDevices {
			if now.Before(s.until[h][d]) {
				continue
			}
			changed = true
			s.end(h, d, now)
			if s.random.IntN(3) == 0 {
				s.session[h][d], s.until[h][d] = -1, now.Add(time.Duration(s.random.IntN(8))*simLook)
			} else {
				s.sessions++
				s.session[h][d], s.until[h][d] = s.random.IntN(simUsers), now.Add(time.Duration(1+s.random.IntN(48))*simLook)
			}
			s.since[h][d], s.eid[h][d] = now, s.sessions // an id of its own
		}
		if changed {
			s.cluster.Hosts[h].Snapshot = s.show(h)
		}
	}
}

func (s *simulation) end(h, d int, now time.Time) {
	if user := s.session[h][d]; user >= 0 {
		s.attached[user] += now.Sub(s.since[h][d])
	}
}

func (s *simulation) show(h int) *snapshot.Snapshot {
	shown := new(snapshot.Snapshot)
	for d := range simDevices {
		device := snapshot.Device{Index: snapshot.DeviceIndex(d), Name: fmt.Sprintf("model %d", h%5), Utilization: new(s.random.IntN(100))}
		if user := s.session[h][d]; user >= 0 {
			eid, name := snapshot.EnvID(fmt.Sprint(s.eid[h][d])), snapshot.Username(fmt.Sprintf("user-%03d", user))
			device.Attachments = []snapshot.Attachment{{EID: eid}}
			shown.Environments = append(shown.Environments, snapshot.Environment{EID: eid, UID: snapshot.UID(1000 + user), Username: name})
			if s.random.IntN(4) > 0 {
				shown.Processes = append(shown.Processes, snapshot.Process{
					PID: snapshot.PID(100 + d), EID: eid, UID: new(snapshot.UID(1000 + user)), Username: name,
					Usage: []snapshot.DeviceUsage{{Index: device.Index, Memory: snapshot.MiB(40_000)}},
				})
			}
		}
		shown.Devices = append(shown.Devices, device)
	}
	return shown
}

// years keeps two years of 1,000 hosts with 8 GPUs each in a database of UTC, or as much of them as GENV_SOAK has
// time for, and logs the memory and the time of each report. It requires what docs/reports.md promises: under 2 GB,
// and for each user what the sessions alone add up to, to the second.
func years(t *testing.T, d database, size func() (bytes int64)) {
	limit := proctest.Soak(t)
	begun, begin := time.Now(), time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	sim, now, largest := newSimulation(), begin, int64(0)
	writing, ctx := errgroup.WithContext(t.Context())
	entries := make(chan *usage.Entry) // written while the fleet goes on
	writing.Go(func() error {
		s := d.open(t)
		for e := range entries {
			until := time.Unix(e.Until, 0)
			if err := s.Add(ctx, e); err != nil {
				return err
			}
			switch early, err := s.Tidy(ctx, until); {
			case err != nil:
				return err
			case early != "":
				return errors.New(early)
			}
			largest = max(largest, size())
			if passed := until.Sub(begin); passed%(73*24*time.Hour) == 0 {
				t.Logf("%3.0f days: %.0f MB, after %s", passed.Hours()/24, float64(size())/1e6, time.Since(begun).Round(time.Second))
			}
		}
		return nil
	})
	for now.Before(begin.AddDate(0, 0, simDays)) && time.Since(begun) < limit {
		e := sim.entry(now)
		now = time.Unix(e.Until, 0).UTC()
		select {
		case entries <- e:
		case <-ctx.Done():
			require.NoError(t, writing.Wait())
		}
	}
	close(entries)
	require.NoError(t, writing.Wait())
	for h := range simHosts {
		for d := range simDevices {
			sim.end(h, d, now)
		}
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	t.Logf("%.0f days with %d sessions in %s: at most %.0f MB; memory %d MB", now.Sub(begin).Hours()/24, sim.sessions,
		time.Since(begun).Round(time.Second), float64(largest)/1e6, memory.Sys>>20)
	require.Less(t, largest, int64(2e9))
	checkReports(t, d.openToRead(t), sim, begin, now)
}

// entry is what the account has of the next half day.
func (s *simulation) entry(now time.Time) *usage.Entry {
	e := &usage.Entry{Since: now.Unix()}
	for end := now.Add(simWrite); now.Before(end); now = now.Add(simLook) {
		s.advance(now)
		s.account.Look(now, s.cluster)
	}
	s.account.Settle(now)
	e.Sums, e.Mark = s.account.Take(), usage.Mark{Until: now.Unix()}
	return e
}

func checkReports(t *testing.T, s *store.Store, sim *simulation, begin, now time.Time) {
	for _, of := range []time.Duration{24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour, 365 * 24 * time.Hour, now.Sub(begin)} {
		for by, q := range map[string]usage.Query{"user": {By: usage.ByUser}, "host": {By: usage.ByHost}, "model": {By: usage.ByModel}, "day": {By: usage.ByDay}} {
			q.Since, q.Until = now.Add(-of+time.Hour).Unix(), now.Unix()
			if of == now.Sub(begin) {
				q.Since = begin.Unix()
			}
			asked := time.Now()
			r := reportOf(t, s, q)
			t.Logf("%4.0f days by %-5s: %4d lines in %s", of.Hours()/24, by, len(r.Rows), time.Since(asked).Round(time.Millisecond))
			if by != "user" || q.Since != begin.Unix() {
				continue
			}
			for _, row := range r.Rows {
				var user int
				proctest.Try(fmt.Sscanf(row.Key, "user-%d", &user)).OK(t)
				require.Equal(t, int64(sim.attached[user]/time.Second), row.Attached, row.Key)
			}
		}
	}
}

func TestSoakYears(t *testing.T) {
	proctest.Soak(t)
	t.Run("file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), store.FileName)
		years(t, database{path, store.Options{In: time.UTC}}, func() (bytes int64) {
			for _, part := range []string{path, path + "-wal"} {
				bytes += proctest.Try(os.Stat(part)).OK(t).Size()
			}
			return bytes
		})
	})
	t.Run("server", func(t *testing.T) {
		server := servers.StartPostgres(t, "")
		years(t, database{server.URL(), options()}, func() (bytes int64) {
			conn := proctest.Try(pgx.Connect(t.Context(), server.URL())).OK(t)
			defer conn.Close(t.Context())
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_database_size(current_database())").Scan(&bytes))
			return bytes
		})
	})
}
