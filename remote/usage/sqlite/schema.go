package sqlite

import (
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/remote/usage"
)

// version is that of the schema. A database of a higher one is left alone.
// Before version 2 the rows of a day were written with those of its hours; before version 3 there
// were no sums of months.
const version = 3

// columns are those of usage.Amounts, in the order of amountsOf.
const columns = "attached, used, computing, idle, unknown, unmeasured, memory, findings, terminated, detached"

func amountsOf(a *usage.Amounts) []any {
	return []any{&a.Attached, &a.Used, &a.Computing, &a.Idle, &a.Unknown, &a.Unmeasured, &a.Memory, &a.Findings, &a.Terminated, &a.Detached}
}

// The tables with amounts. A name is that of a user, host or model.
const (
	hourRows = "hours"
	dayRows  = "days"
	hourSums = "hour_sums"
	daySums  = "day_sums"
	// monthSums are there so that a report of a year doesn't read as many rows as there are days.
	monthSums = "month_sums"
)

func schema() string {
	statements := []string{
		"CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
		"CREATE TABLE gaps (since INTEGER PRIMARY KEY, until INTEGER NOT NULL)",
		"CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
		"CREATE TABLE devices (id INTEGER PRIMARY KEY, host INTEGER NOT NULL, device INTEGER NOT NULL, model INTEGER NOT NULL, UNIQUE (host, device, model))",
	}
	for _, table := range []string{hourRows, dayRows} {
		statements = append(statements, fmt.Sprintf(
			"CREATE TABLE %s (start INTEGER, device INTEGER, user INTEGER, eid, %s, PRIMARY KEY (start, device, user, eid)) WITHOUT ROWID", table, amountColumns()))
	}
	for _, table := range []string{hourSums, daySums} {
		statements = append(statements, createSums(table))
	}
	return strings.Join(append(statements, upgrade()), ";\n")
}

// upgrade makes what version 2 didn't have.
func upgrade() string {
	return createSums(monthSums) + fmt.Sprintf(";\nPRAGMA user_version = %d", version)
}

func createSums(table string) string {
	return fmt.Sprintf("CREATE TABLE %s (kind INTEGER, start INTEGER, name INTEGER, %s, peak INTEGER NOT NULL, PRIMARY KEY (kind, start, name)) WITHOUT ROWID", table, amountColumns())
}

func amountColumns() string {
	return strings.ReplaceAll(columns, ",", " INTEGER NOT NULL,") + " INTEGER NOT NULL"
}

func hasSums(table string) bool { return table != hourRows && table != dayRows }

// upsert adds amounts to those that a table has.
func upsert(table string, keys ...string) string {
	all := strings.Join(keys, ", ") + ", " + amounts(table)
	values := strings.Repeat(", ?", strings.Count(all, ",")+1)[2:]
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s) ON CONFLICT DO UPDATE SET %s", table, all, values, addition(table))
}

// amounts are the columns of a table with amounts.
func amounts(table string) string {
	if hasSums(table) {
		return columns + ", peak"
	}
	return columns
}

// addition sets the amounts of a row to those that it has and those of another one.
func addition(table string) string {
	var set []string
	for column := range strings.SplitSeq(columns, ", ") {
		set = append(set, fmt.Sprintf("%s = %s + excluded.%s", column, column, column))
	}
	if hasSums(table) {
		set = append(set, "peak = max(peak, excluded.peak)")
	}
	return strings.Join(set, ", ")
}

// amountSums are the columns of a sum over rows.
func amountSums() string {
	return "sum(" + strings.ReplaceAll(columns, ", ", "), sum(") + ")"
}

// rollUp sums up the rows of hours between two moments as those of a day. They are written in
// the order of their keys, all at once: that takes a third less room than adding each hour to
// its day.
var rollUp = fmt.Sprintf("INSERT INTO %s SELECT ?1, device, user, eid, %s FROM %s WHERE start >= ?1 AND start < ?2 GROUP BY device, user, eid",
	dayRows, amountSums(), hourRows)

// rollUpMonth sums up the sums of days between two moments as those of a month.
var rollUpMonth = fmt.Sprintf("INSERT OR REPLACE INTO %s SELECT kind, ?1, name, %s, max(peak) FROM %s WHERE kind IN (%s) AND start >= ?1 AND start < ?2 GROUP BY kind, name",
	monthSums, amountSums(), daySums, kinds)

// kinds are those of sums, for conditions: the tables are sorted by kind, and then by start.
var kinds = fmt.Sprintf("%d, %d, %d, %d", usage.ByUser, usage.ByHost, usage.ByModel, usage.OfAll)
