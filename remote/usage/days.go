package usage

import (
	"cmp"
	"maps"
	"slices"
)

// Days are amounts by the key of a row, and by date.
type Days map[string]map[string]Amounts

// Keys of Days that stand for several.
const (
	Others  = "(others)"   // those beyond the largest
	AllGPUs = "(all GPUs)" // where the rows are days
)

// Add adds amounts of a day.
func (d Days) Add(key, date string, a *Amounts) {
	if d[key] == nil {
		d[key] = make(map[string]Amounts)
	}
	sum := d[key][date]
	sum.Add(a)
	d[key][date] = sum
}

// regrouped are the amounts by other keys, which a key may have several of. Others stay.
func (d Days) regrouped(of func(key string) []string) Days {
	regrouped := make(Days)
	for key, days := range d {
		keys := []string{Others}
		if key != Others {
			keys = of(key)
		}
		for date, amounts := range days {
			for _, key := range keys {
				regrouped.Add(key, date, &amounts)
			}
		}
	}
	return regrouped
}

// Largest are the n keys with most time, largest first, with all others joined behind them.
func (d Days) Largest(n int) (keys []string, days Days) {
	sums := make(map[string]Amounts)
	for key, days := range d {
		for _, amounts := range days {
			sum := sums[key]
			sum.Add(&amounts)
			sums[key] = sum
		}
	}
	delete(sums, Others)
	keys = slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		x, y := sums[a], sums[b]
		return cmp.Or(cmp.Compare(max(y.Attached, y.Used), max(x.Attached, x.Used)), cmp.Compare(y.Used, x.Used),
			cmp.Compare(a, b))
	})
	keys = keys[:min(n, len(keys))]
	days = d.regrouped(func(key string) []string {
		if !slices.Contains(keys, key) {
			key = Others
		}
		return []string{key}
	})
	if days[Others] != nil {
		keys = append(keys, Others)
	}
	return keys, days
}
