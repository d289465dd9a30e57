package web_test

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/web"
)

// chromium runs a headless browser once, and returns what it prints.
func chromium(t *testing.T, arguments ...string) string {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, program, append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--user-data-dir=" + t.TempDir(),
	}, arguments...)...)
	output, err := c.Output()
	require.NoError(t, err)
	return string(output)
}

// TestScreenshots takes pictures to look at, if GENV_SCREENSHOTS names a folder for them.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("GENV_SCREENSHOTS")
	if folder == "" {
		t.Skip("GENV_SCREENSHOTS names no folder")
	}
	f := fleetAt(time.Now().Add(-24*time.Hour), 20, 8)
	f.lived()
	f.judged(usual(f.now)...)
	many := newFleet(1000, 8)
	handlers := map[string]*httptest.Server{"": httptest.NewServer(web.New(f.feed, f.options())), "many-": httptest.NewServer(web.New(many.feed, many.options()))}
	for fleet, server := range handlers {
		defer server.Close()
		for name, path := range map[string]string{"overview": "/", "host": "/h/gpu-01", "failed": "/h/gpu-06", "user": "/u/alice", "findings": "/findings"} {
			for size, window := range map[string]string{"phone": "390,2400", "desktop": "1280,1500", "wall": "1920,1080"} {
				for _, theme := range []string{"light", "dark"} {
					if fleet != "" && (name != "overview" || theme == "dark") || size == "wall" && name != "overview" {
						continue
					}
					file := filepath.Join(folder, fleet+name+"-"+size+"-"+theme+".png")
					arguments := []string{"--window-size=" + window, "--screenshot=" + file, server.URL + path}
					if theme == "dark" {
						arguments = append([]string{"--blink-settings=preferredColorScheme=0"}, arguments...)
					} else {
						arguments = append([]string{"--blink-settings=preferredColorScheme=1"}, arguments...)
					}
					chromium(t, arguments...)
				}
			}
		}
	}
}
