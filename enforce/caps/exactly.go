package caps

import (
	"cmp"
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

// No host has more devices.
const maxExactly = 63

// block are devices of a host that processes use together.
type block struct {
	devices []*personDevice
	cost    int8
}

// exactly chooses n of the counted devices of a host so that no ending process uses another device; nil if impossible.
// has and may are how many devices each person has and may lose, by personDevice.Owner. The cheapest go first, then
// those of the person with most, then the newest.
func exactly(counted []*personDevice, n int, has, may map[int]int) (chosen []*personDevice) {
	if n < 1 || n > len(counted) || len(counted) > maxExactly {
		return nil
	}
	has = maps.Clone(has)
	lost := make(map[int]int)
	blocks := blocksOf(counted)
	for n > 0 {
		blocks = slices.DeleteFunc(blocks, func(b block) bool { return b.isTooMuch(lost, may) })
		slices.SortStableFunc(blocks, func(a, b block) int {
			return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(fewest(has, b.devices...), fewest(has, a.devices...)),
				newerFirst(a.devices[0], b.devices[0]))
		})
		first := slices.IndexFunc(blocks, func(b block) bool { return canComplete(blocks, b, n) })
		if first < 0 {
			return nil
		}
		taken := blocks[first].devices
		chosen, n = append(chosen, taken...), n-len(taken)
		countOwners(has, -1, taken...)
		countOwners(lost, 1, taken...)
		blocks = slices.Delete(blocks, first, first+1)
	}
	return chosen
}

func countOwners(to map[int]int, n int, devices ...*personDevice) {
	for _, d := range devices {
		for _, part := range d.perOwner() {
			to[part.Owner] += n
		}
	}
}

func (b *block) isTooMuch(lost, may map[int]int) bool {
	more := make(map[int]int)
	countOwners(more, 1, b.devices...)
	for owner, n := range more {
		if lost[owner]+n > may[owner] {
			return true
		}
	}
	return false
}

func canComplete(blocks []block, with block, n int) bool {
	n -= len(with.devices)
	if n < 0 {
		return false
	}
	sums := uint64(1) // bit k: some blocks have k devices
	for _, b := range blocks {
		if b.devices[0] != with.devices[0] {
			sums |= sums << len(b.devices)
		}
	}
	return sums&(1<<n) != 0
}

// blocksOf are the blocks that may be chosen, with their newest device first. No process on them may stay: none is
// exempt, stuck, or has an unknown environment or device.
func blocksOf(counted []*personDevice) (blocks []block) {
	at := make(map[snapshot.DeviceIndex]*personDevice, len(counted))
	for _, d := range counted {
		at[d.Index] = d
	}
	seen := make(map[*personDevice]bool, len(counted))
	for _, d := range counted {
		if seen[d] {
			continue
		}
		seen[d] = true
		b, free := block{devices: []*personDevice{d}}, true
		for i := 0; i < len(b.devices); i++ {
			d := b.devices[i]
			b.cost, d.Stays = max(b.cost, d.cost), false
			free = free && d.Exempt == judging.Unused && d.Unknown == judging.Unused
			for _, use := range d.Uses {
				free = free && use.Process.PID != 0 && !d.Host.Stuck(use.Process)
				for _, other := range use.Process.Usage {
					mate := at[other.Index]
					if free = free && mate != nil; free && !seen[mate] {
						seen[mate] = true
						b.devices = append(b.devices, mate)
					}
				}
			}
		}
		if slices.SortFunc(b.devices, newerFirst); free {
			blocks = append(blocks, b)
		}
	}
	return blocks
}
