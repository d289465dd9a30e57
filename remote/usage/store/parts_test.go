package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParts(t *testing.T) {
	at := func(text string) int64 {
		when, err := time.Parse("01-02 15:04", text)
		require.NoError(t, err)
		return when.Unix()
	}
	const always = "01-01 00:00"
	for _, test := range []struct {
		name, since, until, hours string
		want                      []periodTable
	}{
		{"nothing", "11-02 10:00", "11-02 10:00", always, nil},
		{"backwards", "11-02 10:00", "11-01 10:00", always, nil},
		{"whole hours", "11-02 10:10", "11-02 11:50", always, []periodTable{{hourSums, at("11-02 10:00"), at("11-02 12:00")}}},
		{"a day", "11-02 00:00", "11-03 00:00", always, []periodTable{{daySums, at("11-02 00:00"), at("11-03 00:00")}}},
		{"over midnight", "11-02 10:00", "11-03 10:00", always, []periodTable{{hourSums, at("11-02 10:00"), at("11-03 10:00")}}},
		{"days and hours", "11-02 10:00", "11-05 10:00", always, []periodTable{
			{hourSums, at("11-02 10:00"), at("11-03 00:00")}, {daySums, at("11-03 00:00"), at("11-05 00:00")}, {hourSums, at("11-05 00:00"), at("11-05 10:00")},
		}},
		{"no hours at the beginning", "11-02 10:00", "11-05 10:00", "11-04 00:00", []periodTable{
			{daySums, at("11-02 00:00"), at("11-05 00:00")}, {hourSums, at("11-05 00:00"), at("11-05 10:00")},
		}},
		{"no hours at all", "11-02 10:00", "11-05 10:00", "11-06 00:00", []periodTable{{daySums, at("11-02 00:00"), at("11-06 00:00")}}},
		{"no hours within a day", "11-02 10:00", "11-02 11:00", "11-06 00:00", []periodTable{{daySums, at("11-02 00:00"), at("11-03 00:00")}}},
		{"no hours before that day's noon", "11-02 10:00", "11-02 14:00", "11-02 12:00", []periodTable{{daySums, at("11-02 00:00"), at("11-03 00:00")}}},
	} {
		require.Equal(t, test.want, partsOf(at(test.since), at(test.until), at(test.hours), time.UTC), test.name)
	}
}
