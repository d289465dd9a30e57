package report

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Hours are seconds as hours, with a decimal place.
func Hours(seconds int64) string { return fmt.Sprintf("%.1f", float64(seconds)/3600) }

// Time is so many seconds, in the units that suit them.
func Time(seconds int64) string { return text.ShortDuration(time.Duration(seconds) * time.Second) }

// Percent is a share, in per cent.
func Percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }
