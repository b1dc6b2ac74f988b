package aws

import (
	"strings"
	"testing"
	"time"
)

// A token gives back every part as it was, however it is kept.
func TestTokenParts(t *testing.T) {
	expires := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tt := range map[string]struct{ arn, account, session string }{
		"the usual":                  {"arn:aws:sts::123456789012:assumed-role/tenant/ns.app", "123456789012", "ns.app"},
		"another partition":          {"arn:aws-cn:sts::123456789012:assumed-role/tenant/ns.app", "123456789012", "ns.app"},
		"the controller's own":       {"", "123456789012", ""},
		"nothing is known":           {"", "", ""},
		"another session":            {"arn:aws:sts::123456789012:assumed-role/tenant/other", "123456789012", "ns.app"},
		"another account":            {"arn:aws:sts::123456789012:assumed-role/tenant/ns.app", "210987654321", "ns.app"},
		"an ARN of something else":   {"arn:aws:iam::123456789012:role/tenant", "123456789012", "tenant"},
		"an ARN with a long account": {"arn:aws:sts::1234567890123:assumed-role/tenant/ns.app", "", "ns.app"},
	} {
		t.Run(name, func(t *testing.T) {
			token := newToken(expires, [partCount]string{partKeyID: "ASIA", partSecret: "secret", partSessionToken: "token",
				partSession: tt.arn, partAccount: tt.account, partSessionName: tt.session})
			c := token.Credentials()
			if c.AccessKeyID != "ASIA" || c.SecretAccessKey != "secret" || c.SessionToken != "token" || !c.CanExpire || !c.Expires.Equal(expires) {
				t.Errorf("credentials: %s %s %s %s", c.AccessKeyID, c.SecretAccessKey, c.SessionToken, c.Expires)
			}
			if token.AssumedRoleARN() != tt.arn || token.AccountID() != tt.account || token.SessionName() != tt.session {
				t.Errorf("got %q, %q, %q", token.AssumedRoleARN(), token.AccountID(), token.SessionName())
			}
		})
	}
	if newToken(expires, [partCount]string{partSessionToken: strings.Repeat("x", maxToken+1)}) != nil {
		t.Error("took a token of 64 KiB")
	}
	if token := newToken(time.Time{}, [partCount]string{partKeyID: "AKIA"}); token.GetDuration() != staticLife || !token.ExpiresAt().IsZero() {
		t.Error("credentials that do not expire do")
	}
}
