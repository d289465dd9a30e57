package packaging

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBookedGPUs: what was reserved is free when it begins, after a warning, and who reserves keeps to the policy. A lab's
// rule: book before you use, one booking at a time, then a day's pause.
func TestBookedGPUs(t *testing.T) {
	d := startFirstDay(t)
	t.Parallel()
	d.withPeople("groupadd lab; useradd --create-home bea; useradd --create-home -G lab abe")
	has := d.has
	d.run(2, "bea", "bea1", "1")
	d.run(2, "bea", "bea2", "1")
	d.enforces(`defaults: {warn: {for: 10m, rules: {reservations: 20s}}}
reservations: [{users: ["%lab"], gpus: 3, longest: 1d, ahead: 14d, at-once: 1, pause: 1d}]
`)
	from := strings.TrimSpace(d.hosts[2].must("date", "-d", "+2 minutes", "+%Y-%m-%d %H:%M"))
	reserve := "genv reserve --gpus 1 --for 12h --from '" + from + "'"
	d.await("abe reserved", func() bool {
		out := d.ask(2, "abe", reserve)
		d.log("abe", out)
		return strings.Contains(out, "Reserved: 1 GPU")
	})
	out := d.ask(2, "abe", "genv reserve --gpus 1 --from 'tomorrow 14:00' --for 1h")
	d.log("another one", out)
	require.NotContains(t, out, "Reserved")
	d.log("bea", d.ask(2, "bea", "genv reserve --gpus 1 --for 1h"))
	d.await("bea was told", d.told(2, "bea", "abe"))
	d.log("bea", d.ask(2, "bea", "genv notices"))
	require.Equal(t, 2, has(2, "bea"), "until it begins")
	d.await("one of bea's went", func() bool { return has(2, "bea") == 1 })
}
