package doctor_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// A token whose issuer is refused by its form has nothing fetched, of no check.
func TestRefusedIssuerIsNotAsked(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	for _, issuer := range []string{"http://user:password@" + host + "/latest/meta-data?x=1", "https://" + host + "/a?b=#c"} {
		w := newWorld(t, "aws")
		w.config.Token = w.sign(func(claims map[string]any) { claims["iss"] = issuer })
		w.config.IssuerClient = server.Client()
		report := w.run()
		if f := report.Of("issuer"); f.Result != doctor.Fail || asked.Load() != 0 {
			t.Errorf("%q: %d requests:\n%s", issuer, asked.Load(), report)
		}
		for _, id := range []string{"discovery", "keys"} {
			if f := report.Of(id); f.Result != doctor.Skip || f.Needs != report.Of("issuer").Number {
				t.Errorf("%+v", f)
			}
		}
	}
}

// A server that echoes what it was sent does not get it into the report.
func TestEchoedSecrets(t *testing.T) {
	const own = "the-caller's-own-credential-0123456789"
	for name, echo := range map[string]func(token string) string{
		"whole":        func(token string) string { return token + " " + own },
		"after much":   func(token string) string { return strings.Repeat("x", 250) + token },
		"with escapes": func(token string) string { return "\x1b[2J\n25 PASS    forged " + token },
	} {
		w := newWorld(t, "aws")
		token := w.sign(nil)
		w.config.Token = token
		w.config.RESTConfig = &rest.Config{Host: w.api().Host, BearerToken: own}
		w.config.Client = interceptor.NewClient(asUser(w.issuer, w.issuer.Client(w.account), w.user), interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				switch review := obj.(type) {
				case *authenticationv1.TokenReview:
					review.Status.Error = echo(token)
					return nil
				case *authenticationv1.SelfSubjectReview:
					review.Status.UserInfo.Username, review.Status.UserInfo.Groups = echo(token), []string{echo(token)}
					return nil
				}
				return c.Create(ctx, obj, opts...)
			},
		})
		report := w.run()
		encoded, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		text := report.String() + report.Condition("Ready", 1).Message + string(encoded)
		for i := 0; i+20 <= len(token); i += 10 {
			if strings.Contains(text, token[i:i+20]) {
				t.Errorf("%s: a part of the token: %s", name, report)
				break
			}
		}
		if strings.Contains(text, own[:18]) || strings.Contains(text, own[10:]) || strings.Contains(text, "\x1b") || strings.Contains(text, "\n25 PASS    forged") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}
