package postgres_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/postgresserver"
	"github.com/seed-3119e985/genv/remote/usage/postgres"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/remote/usage/storetest"
)

func TestSoakYears(t *testing.T) {
	if os.Getenv("GENV_SOAK") == "" {
		t.Skip("GENV_SOAK says how long a soak test runs")
	}
	server := postgresserver.Start(t, "")
	o := options()
	d := storetest.Database{
		Open:       func() (store.Store, error) { return postgres.Open(t.Context(), server.URL(), o) },
		OpenToRead: func() (store.Store, error) { return postgres.OpenToRead(t.Context(), server.URL(), o) },
	}
	storetest.Years(t, d, func() (bytes int64) {
		conn, err := pgx.Connect(t.Context(), server.URL())
		require.NoError(t, err)
		defer conn.Close(t.Context())
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_database_size(current_database())").Scan(&bytes))
		return bytes
	})
}
