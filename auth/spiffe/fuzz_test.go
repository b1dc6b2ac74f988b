package spiffe_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/protobuf/proto"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/spiffe"
)

// Whatever the agent answers, a token that the source returns says what was
// asked for.
func FuzzAnswer(f *testing.F) {
	id := idOf("tenant-a", "app").String()
	for _, answer := range []*broker.FetchJWTSVIDResponse{one(id, sign(f, nil)), one(id, sign(f, set("sub",
		"spiffe://x/y"))),
		one("spiffe://x/y", "a.b.c"), {}} {
		encoded, err := proto.Marshal(answer)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		answer := &broker.FetchJWTSVIDResponse{}
		if proto.Unmarshal(encoded, answer) != nil {
			return
		}
		conn := &answers{answer: func(int) (*broker.FetchJWTSVIDResponse, error) { return answer, nil }}
		token, expiry, err := newSource(t, conn, spiffe.Config{}).Token(t.Context(), serviceAccount("tenant-a", "uid-1"),
			audience,
			&auth.Options{})
		var known *auth.Error
		switch {
		case err != nil && !errors.As(err, &known):
			t.Errorf("no *auth.Error: %v", err)
		case (err == nil) == (token == "") || (err == nil) == expiry.IsZero():
			t.Errorf("a token of %d bytes, expiry %s, %v", len(token), expiry, err)
		case err == nil && !says(token, id):
			t.Errorf("accepted %q", token)
		}
	})
}

// says reads the claims in its own way.
func says(token, subject string) bool {
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	claims := map[string]any{}
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return false
	}
	one, _ := claims["aud"].(string)
	list, _ := claims["aud"].([]any)
	return claims["sub"] == subject && (one == aws.DefaultAudience || len(list) > 0 && list[0] == aws.DefaultAudience)
}
