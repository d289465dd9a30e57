package text

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseIndices reads device indices with commas between them: 0 or 0,2.
func ParseIndices[Index ~int](list string) ([]Index, error) {
	var indices []Index
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseUint(word, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is not the index of a device", word)
		}
		indices = append(indices, Index(n))
	}
	return indices, nil
}

// JoinIndices writes device indices with commas between them, as
// CUDA_VISIBLE_DEVICES and the lines of genv 1.4.3 have them.
func JoinIndices[Index ~int](indices []Index) string {
	words := make([]string, len(indices))
	for i, index := range indices {
		words[i] = strconv.Itoa(int(index))
	}
	return strings.Join(words, ",")
}
