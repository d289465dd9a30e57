package store

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/remote/usage"
)

// Statements are those of PostgreSQL and SQLite alike. What they write differently is in braces:
//
//	{fleet}        the condition that a row is of the fleet, which is the parameter $1
//	{fleet,}       the column for it, and {$1,} its value
//	{part} {part,} {'',} the same for an empty text that earlier versions filled
//	{each $2}      the elements of the JSON array in a parameter, as e.value
//	{least}, {greatest}

// table is one with amounts. Names are those of users, hosts and models, by their ids.
type table struct {
	name string
	keys string // its columns, after the fleet
	user string // the column with a user
	sums bool   // of a kind, with a peak
}

var (
	hourRows = table{"hours", `start, device, "user", eid`, `"user"`, false}
	dayRows  = table{"days", `start, device, "user", eid`, `"user"`, false}
	hourSums = table{"hour_sums", "kind, start, name", "name", true}
	daySums  = table{"day_sums", "kind, start, name", "name", true}
	// monthSums are there so that a report of a year doesn't read as many rows as there are days.
	monthSums = table{"month_sums", "kind, start, name", "name", true}
)

// tables are those of a database.
func (s *Store) tables() []table {
	all := []table{hourRows, dayRows, hourSums, daySums}
	if s.months {
		all = append(all, monthSums)
	}
	return all
}

// columns are those of usage.Amounts, in the order of amountsOf.
var columns = []string{"attached", "used", "computing", "idle", "unknown", "unmeasured", "memory", "findings", "terminated", "detached"}

func amountsOf(a *usage.Amounts) []any {
	return []any{&a.Attached, &a.Used, &a.Computing, &a.Idle, &a.Unknown, &a.Unmeasured, &a.Memory, &a.Findings, &a.Terminated, &a.Detached}
}

// columnTypes declare the columns with amounts.
func columnTypes(of string) string {
	return strings.Join(columns, " "+of+" NOT NULL, ") + " " + of + " NOT NULL"
}

// amounts are the columns with amounts.
func (t *table) amounts() string {
	if t.sums {
		return strings.Join(columns, ", ") + ", peak"
	}
	return strings.Join(columns, ", ")
}

// summed are the amounts of several rows r.
func (t *table) summed() string {
	list := make([]string, 0, len(columns)+1)
	for _, column := range columns {
		list = append(list, "CAST(sum(r."+column+") AS bigint)") // PostgreSQL's sum is numeric
	}
	if t.sums {
		list = append(list, "max(r.peak)")
	}
	return strings.Join(list, ", ")
}

// kind is a condition for rows of some kinds. All of them are named so that SQLite uses its index by kind.
func (t *table) kind(kinds ...usage.Kind) string {
	if !t.sums {
		return ""
	}
	return " AND r.kind IN (" + strings.Trim(strings.ReplaceAll(fmt.Sprint(asNumbers(kinds)), " ", ", "), "[]") + ")"
}

func asNumbers(kinds []usage.Kind) (numbers []int) {
	for _, kind := range kinds {
		numbers = append(numbers, int(kind))
	}
	return numbers
}

func allKinds() []usage.Kind {
	return []usage.Kind{usage.ByUser, usage.ByHost, usage.ByModel, usage.OfAll}
}

// upsert adds amounts to those that the table has. from selects the values for the keys, separated as these are, from
// rows r with amounts, and has their conditions.
func (t *table) upsert(values, from string) string {
	var set []string
	for _, column := range columns {
		set = append(set, fmt.Sprintf("%[1]s = %[2]s.%[1]s + excluded.%[1]s", column, t.name))
	}
	if t.sums {
		set = append(set, fmt.Sprintf("peak = {greatest}(%s.peak, excluded.peak)", t.name))
	}
	return fmt.Sprintf("INSERT INTO %s ({fleet,}%s, %s) SELECT {$1,}%s, %s FROM %s GROUP BY %s ON CONFLICT ({fleet,}%s) DO UPDATE SET %s",
		t.name, t.keys, t.amounts(), values, t.summed(), from, withoutConstants(values), t.keys, strings.Join(set, ", "))
}

// withoutConstants leaves out parameters, by which no rows can be grouped.
func withoutConstants(values string) string {
	var list []string
	for value := range strings.SplitSeq(values, ", ") {
		if !strings.Contains(value, "$") {
			list = append(list, value)
		}
	}
	return strings.Join(list, ", ")
}

// field is a field of a JSON array, by its place there.
type field struct{ name, typed string }

// records are the elements of a parameter, as rows with amounts after other fields.
func records(parameter string, fields ...field) string {
	for _, column := range columns {
		fields = append(fields, field{column, "bigint"})
	}
	return elements(parameter, fields...)
}

// elements are the elements of a parameter, which is a JSON array of arrays, as rows.
func elements(parameter string, fields ...field) string {
	var list []string
	for i, f := range fields {
		value := fmt.Sprintf("e.value ->> %d", i)
		if f.typed != "" {
			value = fmt.Sprintf("CAST(%s AS %s)", value, f.typed)
		}
		list = append(list, value+" AS "+f.name)
	}
	return fmt.Sprintf("(SELECT %s FROM {each %s} AS e)", strings.Join(list, ", "), parameter)
}

// array is a parameter for elements.
func array(list [][]any) (string, error) {
	encoded, err := json.Marshal(list)
	return string(encoded), err
}

// valid is a text as both databases take it: UTF-8 without zero bytes.
func valid(name string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(name, "\uFFFD"), "\x00", "\uFFFD")
}
