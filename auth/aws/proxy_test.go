package aws_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// Agents and metadata services that hand out the controller's own identity
// speak plain http, not always on an address that shows what it is.
func TestAgentsAreDialledDirectly(t *testing.T) {
	keys := `{"Code":"Success","AccessKeyId":"ASIAOWN","SecretAccessKey":"s","Token":"t","Expiration":"` +
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"}`
	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
		switch {
		case r.Method == http.MethodPut:
			_, _ = io.WriteString(w, "session")
		case strings.HasSuffix(r.URL.Path, "/security-credentials/"):
			_, _ = io.WriteString(w, "own-role")
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, keys)
		}
	}
	for _, variable := range []string{"AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Run(variable, func(t *testing.T) {
			clearEnvironment(t)
			t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
			proxy, asked := testenv.RefusingProxy(t)
			t.Setenv(variable, testenv.Alias(t, answer))
			own, err := get(t, &aws.Provider{}, auth.WithSTSRegion("eu-central-1"), auth.WithProxyURL(*proxy))
			if err != nil || len(asked()) != 0 || own.AccessKeyID() != "ASIAOWN" {
				t.Errorf("%v, %v; the proxy was asked %q", own, err, asked())
			}
		})
	}
}

// A tenant learns nothing of the controller's network from the errors of a
// proxy of its own.
func TestErrorsOfAProxy(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	testenv.CheckProxyErrors(t, func(ctx context.Context, proxy auth.Option) error {
		_, err := auth.GetAccessToken(ctx, aws.Impatient(), w.options("tenant-a", "app", auth.WithHTTPClient(nil), proxy)...)
		return err
	})
	w.setWebIdentity(t)
	testenv.CheckProxyErrors(t, func(ctx context.Context, proxy auth.Option) error {
		_, err := auth.GetAccessToken(ctx, aws.Impatient(), auth.WithSTSRegion("eu-central-1"), proxy)
		return err
	}, "silent") // the SDK's chain goes on after the call has ended
}
