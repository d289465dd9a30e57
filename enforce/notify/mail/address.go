package mail

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// errNoAddress is why a user gets no mail.
var errNoAddress = errors.New("no mail address is known for this user")

// addressWithin is how long a command may take to find an address.
const addressWithin = 10 * time.Second

// addressOf is where mail to a user goes. An error that isn't final may be over soon.
func addressOf(ctx context.Context, settings *policy.Mail, user snapshot.Username) (string, error) {
	switch address, known := settings.Address(user); {
	case known:
		return address, nil
	case settings.AddressTemplate != nil:
		address, err := settings.TemplatedAddress(user)
		return address, finally(err)
	case len(settings.AddressCommand) > 0:
		return askAddress(ctx, settings.AddressCommand, user)
	}
	return "", finally(errNoAddress)
}

// askAddress asks a program for the address of a user: the name is its last argument.
func askAddress(ctx context.Context, command []string, user snapshot.Username) (string, error) {
	if text.CheckUsername(string(user)) != nil || strings.ContainsAny(string(user), "'`\"$;&<>|(){}") { // it may be a script
		return "", finally(fmt.Errorf("%w: %s", policy.ErrUserName, text.Quoted(string(user), 80)))
	}
	out, err := runProgram(ctx, addressWithin, nil, append(command[:len(command):len(command)], string(user))...)
	if err != nil {
		return "", fmt.Errorf("%s: %w", command[0], err)
	}
	answer := strings.TrimSuffix(strings.TrimSuffix(out, "\n"), "\r")
	if answer == "" {
		return "", finally(errNoAddress)
	}
	address, err := policy.ParseAddress(answer)
	if err != nil {
		return "", finally(fmt.Errorf("%s: %w", command[0], err))
	}
	return address, nil
}
