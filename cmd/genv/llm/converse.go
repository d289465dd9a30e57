package llm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// Converse sends each line of in as a message, with all before it, and writes the answers to
// out, until in ends or an answer fails.
func (c Client) Converse(ctx context.Context, model string, in io.Reader, out io.Writer) error {
	var conversation []Message
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		conversation = append(conversation, Message{Role: "user", Content: lines.Text()})
		answer, err := c.Chat(ctx, model, conversation, out)
		if err != nil {
			return err
		}
		fmt.Fprintln(out)
		conversation = append(conversation, answer)
	}
	return lines.Err()
}
