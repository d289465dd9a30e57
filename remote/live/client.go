package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
)

// Client reads the state of a controller over its socket, by one call at a time. Close it after use.
type Client struct {
	http  http.Client
	etag  string
	fleet *FleetState // of etag
}

const address = "http://controller" // any name: all connections lead to the socket

// NewClient returns a client for a socket. It doesn't connect yet.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return socket.Dial(ctx, path)
	}
	return &Client{http: http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Close closes the connections. Calls under way end by their contexts.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Fleet returns the present state, or the same value as before if nothing has changed. It must not be changed.
func (c *Client) Fleet(ctx context.Context) (*FleetState, error) {
	response, err := c.get(ctx, "/api/v1/fleet", http.Header{"If-None-Match": {c.etag}})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotModified {
		return c.fleet, nil
	}
	fleet := new(FleetState)
	if err := decode(response.Body, fleet); err != nil {
		return nil, err
	}
	c.etag, c.fleet = response.Header.Get("ETag"), fleet
	return fleet, nil
}

// Events returns those events with a number greater than after that are still kept.
func (c *Client) Events(ctx context.Context, after uint64) (EventsDocument, error) {
	var events EventsDocument
	response, err := c.get(ctx, fmt.Sprintf("/api/v1/events?after=%d", after), nil)
	if err != nil {
		return events, err
	}
	defer response.Body.Close()
	return events, decode(response.Body, &events)
}

func (c *Client) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	response, err := c.ask(ctx, http.MethodGet, path, header, nil)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotModified {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // even a part of the text helps
		return nil, fmt.Errorf("the controller answers %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return response, nil
}

// ask sends a request, once. Its error leaves out the address, which isn't that of the socket.
func (c *Client) ask(
	ctx context.Context, method, path string, header http.Header, body []byte,
) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.GetBody = nil
	maps.Copy(request.Header, header)
	response, err := c.http.Do(request)
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		err = failed.Err
	}
	return response, err
}

func decode(body io.Reader, value any) error {
	if err := json.NewDecoder(body).Decode(value); err != nil {
		return fmt.Errorf("answer of the controller: %w", err)
	}
	return nil
}

const maxAnswer = 64 << 10

// SendAction asks a controller to carry out an action, and waits for the answer. After a *operator.Refusal nothing was
// done. After any other error that is unknown: look again before repeating the action.
func SendAction(ctx context.Context, path string, action operator.Action) (answer operator.Answer, err error) {
	action.Schema = operator.ActionSchema
	if err := action.Check(); err != nil {
		return answer, err
	}
	body, err := json.Marshal(action)
	if err != nil {
		return answer, fmt.Errorf("encode the action: %w", err)
	}
	client := NewClient(path)
	defer client.Close()
	header := http.Header{"Content-Type": {"application/json"}}
	response, err := client.ask(ctx, http.MethodPost, ActionsPath, header, body)
	if err != nil {
		return answer, fmt.Errorf("ask the controller: %w", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return answer, fmt.Errorf("read the controller's answer: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		return answer, decode(bytes.NewReader(data), &answer)
	}
	refusal := new(operator.Refusal)
	if err := json.Unmarshal(data, refusal); err != nil || refusal.Text == "" {
		return answer, fmt.Errorf("the controller answered %s", response.Status)
	}
	return answer, refusal
}
