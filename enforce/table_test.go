package enforce_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

var errDown = errors.New("connection refused")

func itoa(n int) string { return strconv.Itoa(n) }

func number(t *testing.T, text string) int {
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func index(t *testing.T, text string) snapshot.DeviceIndex {
	return snapshot.DeviceIndex(number(t, text))
}
