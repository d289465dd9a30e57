package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/seed-3119e985/genv/remote/operator"
)

// maxAnswer is how long an answer may be.
const maxAnswer = 64 << 10

// SendAction asks the controller with a socket to carry an action out, and waits for the answer.
// A *operator.Refusal as the error says that nothing was done. With any other error that is
// not known: look again before repeating it.
func SendAction(ctx context.Context, path string, action operator.Action) (operator.Answer, error) {
	action.Schema = operator.ActionSchema
	if err := action.Check(); err != nil {
		return operator.Answer{}, err
	}
	body, err := json.Marshal(action)
	if err != nil {
		return operator.Answer{}, fmt.Errorf("encode the action: %w", err)
	}
	client := NewClient(path)
	defer client.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://controller"+ActionsPath, bytes.NewReader(body))
	if err != nil {
		return operator.Answer{}, err
	}
	request.GetBody = nil // it is sent once
	request.Header.Set("Content-Type", "application/json")
	response, err := client.http.Do(request)
	if err != nil {
		return operator.Answer{}, fmt.Errorf("ask the controller: %w", err)
	}
	defer response.Body.Close()
	return answerOf(response)
}

func answerOf(response *http.Response) (operator.Answer, error) {
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return operator.Answer{}, fmt.Errorf("read the controller's answer: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		var answer operator.Answer
		if err := json.Unmarshal(data, &answer); err != nil {
			return answer, fmt.Errorf("the controller's answer: %w", err)
		}
		return answer, nil
	}
	refusal := new(operator.Refusal)
	if err := json.Unmarshal(data, refusal); err != nil || refusal.Text == "" {
		return operator.Answer{}, fmt.Errorf("the controller answered %s", response.Status)
	}
	return operator.Answer{}, refusal
}
