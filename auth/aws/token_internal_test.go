package aws

import (
	"testing"
	"time"
)

// A token gives back every part as it was.
func TestTokenParts(t *testing.T) {
	expires := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tt := range map[string]struct{ arn, account, want string }{
		"the usual": {"arn:aws:sts::123456789012:assumed-role/tenant/ns.app", "123456789012",
			"arn:aws:sts::123456789012:assumed-role/tenant/ns.app"},
		"another partition": {"arn:aws-cn:sts::123456789012:assumed-role/tenant/ns.app", "123456789012",
			"arn:aws-cn:sts::123456789012:assumed-role/tenant/ns.app"},
		"nothing is known":          {"", "", ""},
		"another session":           {"arn:aws:sts::123456789012:assumed-role/tenant/other", "", ""},
		"no role":                   {"arn:aws:sts::123456789012:assumed-role/ns.app", "", ""},
		"a role":                    {"arn:aws:iam::123456789012:role/ns.app", "", ""},
		"a user":                    {"arn:aws:sts::123456789012:federated-user/ns.app", "", ""},
		"an account that is longer": {"arn:aws:sts::1234567890123:assumed-role/tenant/ns.app", "", ""},
		"too much":                  {"arn:aws:sts::123456789012:assumed-role/tenant:x/ns.app", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			parts := [partCount]string{partKeyID: "ASIA", partSecret: "secret", partSessionToken: "token", partSession: "ns.app"}
			parts[partPartition], parts[partAccount], parts[partRole] = cutSession(tt.arn, "ns.app")
			token := newToken(expires, parts)
			c := token.Credentials()
			if c.AccessKeyID != "ASIA" || c.SecretAccessKey != "secret" || c.SessionToken != "token" || !c.CanExpire ||
				!c.Expires.Equal(expires) {
				t.Errorf("credentials: %s %s %s %s", c.AccessKeyID, c.SecretAccessKey, c.SessionToken, c.Expires)
			}
			if token.AssumedRoleARN() != tt.want || token.AccountID() != tt.account || token.SessionName() != "ns.app" {
				t.Errorf("got %q, %q, %q", token.AssumedRoleARN(), token.AccountID(), token.SessionName())
			}
		})
	}
	if newToken(expires, [partCount]string{partSecret: "a" + separator, partSessionToken: "b"}) != nil {
		t.Error("took a secret with a separator")
	}
	if c := (&Token{}).Credentials(); c.AccessKeyID != "" || c.SessionToken != "" || (&Token{}).SessionName() != "" {
		t.Errorf("an empty token has %v", c)
	}
	own := newToken(time.Time{}, [partCount]string{partKeyID: "AKIA", partAccount: "123456789012"})
	if own.GetDuration() != staticLife || !own.ExpiresAt().IsZero() || own.AccountID() != "123456789012" ||
		own.AssumedRoleARN() != "" {
		t.Errorf("the controller's own: %v of %q, %q", own, own.AccountID(), own.AssumedRoleARN())
	}
}
