package web_test

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// palette are the colours of a theme.
func palette(css string) map[string]string {
	colours := make(map[string]string)
	for _, m := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(css, -1) {
		colours[m[1]] = m[2]
	}
	return colours
}

// luminance is that of WCAG 2.
func luminance(t *testing.T, colour string) float64 {
	n, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	require.NoError(t, err, colour)
	linear := func(v uint64) float64 {
		c := float64(v&255) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(n>>16) + 0.7152*linear(n>>8) + 0.0722*linear(n)
}

// TestContrast: texts on what they are on, in both themes.
func TestContrast(t *testing.T) {
	content, err := os.ReadFile("static/style.css")
	require.NoError(t, err)
	light, rest, found := strings.Cut(string(content), "@media (prefers-color-scheme: dark)")
	require.True(t, found)
	dark, _, _ := strings.Cut(rest, "*, *::before")
	for theme, colours := range map[string]map[string]string{"light": palette(light), "dark": palette(dark)} {
		pairs := [][2]string{{"free-text", "free"}, {"busy-text", "busy"}, {"idle-text", "idle"}, {"finding-text", "finding"}, {"exempt-text", "exempt"}, {"unknown-text", "unknown"}}
		for _, text := range []string{"text", "muted", "link", "green", "red", "amber", "blue"} {
			pairs = append(pairs, [2]string{text, "card"}, [2]string{text, "page"})
		}
		for _, text := range []string{"text", "muted", "red", "link"} {
			pairs = append(pairs, [2]string{text, "bad"}, [2]string{text, "note"})
		}
		for _, pair := range pairs {
			require.NotEmpty(t, colours[pair[0]], "%s %s", theme, pair[0])
			require.NotEmpty(t, colours[pair[1]], "%s %s", theme, pair[1])
			a, b := luminance(t, colours[pair[0]])+0.05, luminance(t, colours[pair[1]])+0.05
			require.GreaterOrEqual(t, max(a, b)/min(a, b), 4.5, "%s: %s on %s", theme, pair[0], pair[1])
		}
	}
}
